/* sha256.h - SHA-256 (FIPS 180-4) of a whole source. It identifies a published file under any name. */
#ifndef DV_FILE_SHA256_H
#define DV_FILE_SHA256_H

#include "core/file/source.h"

/* 64 lower-case hexadecimal digits and a 0. About a second for 300 MB. */
davy_result dv_sha256_source(dv_source *s, char hex[65]);

#endif
