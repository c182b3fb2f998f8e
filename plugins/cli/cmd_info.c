/* cmd_info.c - davy devices and davy inspect: descriptions of the computer's devices and of a model file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/commands.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"

static void print_memory(const davy_device_info *d) {
    const double gib = 1.0 / (double)(1u << 30);
    char text[40] = "-";
    if (d->memory_free_bytes > 0) {
        snprintf(text, sizeof text, "%.1f of %.1f GiB free", (double)d->memory_free_bytes * gib,
                 (double)d->memory_total_bytes * gib);
    } else if (d->memory_total_bytes > 0) {
        snprintf(text, sizeof text, "%.1f GiB", (double)d->memory_total_bytes * gib);
    }
    printf(" %-24s", text);
}

static void print_device(const davy_device_info *d) {
    const struct {
        uint32_t bit;
        const char *name;
    } features[] = {{DAVY_FEATURE_FP16, "fp16"},
                    {DAVY_FEATURE_BF16, "bf16"},
                    {DAVY_FEATURE_FP8, "fp8"},
                    {DAVY_FEATURE_INT8, "int8"}};
    char compute[24] = "-";
    char driver[24] = "-";
    if (d->compute_major > 0) {
        snprintf(compute, sizeof compute, "%d.%d", d->compute_major, d->compute_minor);
        snprintf(driver, sizeof driver, "%d.%d", d->driver_version / 1000, d->driver_version % 1000 / 10);
    }
    printf("%-8s %-36s", d->selector, d->name);
    print_memory(d);
    printf(" %-8s %-7s", compute, driver);
    for (size_t i = 0; d->reason[0] == 0 && i < sizeof features / sizeof features[0]; i++) {
        if ((d->features & features[i].bit) != 0) {
            printf(" %s", features[i].name);
        }
    }
    printf("%s%s\n", d->reason[0] != 0 ? " not usable: " : "", d->reason);
}

static void add_device(cJSON *list, const davy_device_info *d) {
    char uuid[48] = "";
    cJSON *j = cJSON_CreateObject();
    for (size_t i = 0; d->compute_major > 0 && i < 16; i++) {
        snprintf(uuid + strlen(uuid), sizeof uuid - strlen(uuid), "%s%02x",
                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", d->uuid[i]);
    }
    cJSON_AddStringToObject(j, "device", d->selector);
    cJSON_AddStringToObject(j, "kind", d->kind == DAVY_DEVICE_CUDA ? "cuda" : "cpu");
    cJSON_AddStringToObject(j, "name", d->name);
    cJSON_AddStringToObject(j, "uuid", uuid);
    cJSON_AddBoolToObject(j, "usable", d->reason[0] == 0);
    cJSON_AddStringToObject(j, "reason", d->reason);
    cJSON_AddNumberToObject(j, "memory_total_bytes", (double)d->memory_total_bytes);
    cJSON_AddNumberToObject(j, "memory_free_bytes", (double)d->memory_free_bytes);
    cJSON_AddBoolToObject(j, "fp16", (d->features & DAVY_FEATURE_FP16) != 0);
    cJSON_AddBoolToObject(j, "bf16", (d->features & DAVY_FEATURE_BF16) != 0);
    cJSON_AddBoolToObject(j, "fp8", (d->features & DAVY_FEATURE_FP8) != 0);
    cJSON_AddBoolToObject(j, "int8", (d->features & DAVY_FEATURE_INT8) != 0);
    cJSON_AddNumberToObject(j, "compute_major", d->compute_major);
    cJSON_AddNumberToObject(j, "compute_minor", d->compute_minor);
    cJSON_AddNumberToObject(j, "driver_version", d->driver_version);
    cJSON_AddItemToArray(list, j);
}

/* Opens a GPU: only then its driver reports the free memory and whether the GPU can be used. */
static void try_device(const cli_session *s, int32_t index, davy_device_info *d) {
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = d->selector, .n_threads = 1};
    davy_context *ctx = NULL;
    davy_error_info e = {.struct_size = sizeof e};
    if (s->api->context_create(&desc, &ctx) >= 0) {
        s->api->device_info(NULL, index, d);
    } else if (s->api->last_error(&e) >= 0) {
        snprintf(d->reason, sizeof d->reason, "%.255s", cli_without_name(d->selector, e.message));
    }
    s->api->context_release(ctx);
}

/* A row with the reason why there is no GPU. */
static davy_device_info no_gpu(const cli_session *s) {
    davy_device_info d = {.struct_size = sizeof d, .kind = DAVY_DEVICE_CUDA, .selector = "cuda", .name = "-"};
    try_device(s, -1, &d);
    return d;
}

static void tell(cJSON *list, const davy_device_info *d) {
    if (list != NULL) {
        add_device(list, d);
    } else {
        print_device(d);
    }
}

static int list_devices(const cli_session *s, cJSON *list) {
    int32_t count = 0;
    davy_result r = s->api->device_count(NULL, &count);
    if (list == NULL) {
        printf("%-8s %-36s %-24s %-8s %-7s\n", "device", "name", "memory", "compute", "driver");
    }
    for (int32_t i = 0; r >= 0 && i < count; i++) {
        davy_device_info d = {.struct_size = sizeof d};
        r = s->api->device_info(NULL, i, &d);
        if (r >= 0 && d.kind == DAVY_DEVICE_CUDA && d.reason[0] == 0) {
            try_device(s, i, &d);
        }
        if (r >= 0) {
            tell(list, &d);
        }
    }
    if (r >= 0 && count == 1) {
        const davy_device_info none = no_gpu(s);
        tell(list, &none);
    }
    return r < 0 ? cli_session_fail(s, "devices", r) : CLI_OK;
}

int cli_devices(const cli_args *a) {
    cli_session s;
    int r = cli_session_load(&s);
    if (r == CLI_OK) {
        cJSON *list = a->json ? cJSON_CreateArray() : NULL;
        r = list_devices(&s, list);
        if (r == CLI_OK && list != NULL) {
            char *text = cJSON_Print(list);
            printf("%s\n", text != NULL ? text : "[]");
            cJSON_free(text);
        }
        cJSON_Delete(list);
    }
    cli_session_close(&s);
    return r;
}

/* Prints whole numbers with thousands separators, other numbers with %g. */
static void print_number(double v) {
    char digits[32];
    if (v < 0 || v > 9e15 || v != (double)(uint64_t)v) {
        printf("%g", v);
        return;
    }
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    const size_t n = strlen(digits);
    for (size_t i = 0; i < n; i++) {
        printf("%s%c", i > 0 && (n - i) % 3 == 0 ? "," : "", digits[i]);
    }
}

/* Prints a shape as "64 x 3 x 3 x 3", other lists with commas, and only the values of an object. */
static void print_value(const cJSON *v) {
    if (cJSON_IsString(v)) {
        cli_plain(v->valuestring);
        printf("%s", v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        print_number(v->valuedouble);
    } else if (cJSON_IsBool(v)) {
        printf("%s", cJSON_IsTrue(v) ? "yes" : "no");
    } else if (cJSON_IsNull(v)) {
        printf("unknown");
    } else {
        const cJSON *item = NULL;
        cJSON_ArrayForEach(item, v) {
            const char *between = cJSON_IsObject(v) ? "  " : cJSON_IsNumber(item) ? " x " : ", ";
            printf("%s", item == v->child ? "" : between);
            if (cJSON_IsNumber(item) && cJSON_IsArray(v)) {
                printf("%.0f", item->valuedouble);
            } else {
                print_value(item);
            }
        }
    }
}

/* Prints one line per member. A member that is an object, or a list of objects, has its own indented lines. */
static void print_table(const cJSON *object, int indent) {
    const cJSON *v = NULL;
    cJSON_ArrayForEach(v, object) {
        char label[64];
        snprintf(label, sizeof label, "%s", v->string != NULL ? v->string : "-");
        cli_plain(label);
        for (char *c = label; *c != 0; c++) {
            *c = *c == '_' ? ' ' : *c;
        }
        if (cJSON_IsObject(v) && v->child != NULL) {
            printf("%*s%s\n", indent, "", label);
            print_table(v, indent + 2);
            continue;
        }
        if (cJSON_IsArray(v) && cJSON_IsObject(v->child)) {
            const cJSON *item = NULL;
            printf("%*s%s\n", indent, "", label);
            cJSON_ArrayForEach(item, v) {
                printf("%*s", indent + 2, "");
                print_value(item);
                printf("\n");
            }
            continue;
        }
        printf("%*s%-*s ", indent, "", 22 - indent, label);
        print_value(v);
        printf("\n");
    }
}

/* Prints the description. A file that is not recognised is a failure with its own line on stderr. */
static int show(const cli_args *a, const char *text) {
    cJSON *j = cJSON_Parse(text);
    if (!cJSON_IsObject(j)) {
        cJSON_Delete(j);
        return cli_fail(a->inputs[0], "the library's description is not a JSON object");
    }
    if (a->json) {
        char *pretty = cJSON_Print(j);
        char *utf8 = cli_utf8(pretty != NULL ? pretty : text);
        printf("%s\n", utf8 != NULL ? utf8 : "{}");
        free(utf8);
        cJSON_free(pretty);
    } else {
        print_table(j, 0);
    }
    int r = CLI_OK;
    if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(j, "recognised"))) {
        const cJSON *why = cJSON_GetObjectItemCaseSensitive(j, "why");
        r = cli_fail(a->inputs[0], "%s",
                     cJSON_IsString(why) ? cli_without_name(a->inputs[0], why->valuestring) : "not recognised");
    }
    cJSON_Delete(j);
    return r;
}

int cli_inspect(const cli_args *a) {
    cli_session s;
    cli_args here = *a;
    int r = cli_session_load(&s);
    here.device = a->device != NULL ? a->device : "cpu"; /* nothing is computed, so no GPU is opened */
    if (r == CLI_OK) {
        r = cli_session_context(&s, &here);
    }
    const davy_inspect_1 *inspect = r == CLI_OK ? s.api->get_extension("davy.inspect/1") : NULL;
    if (r == CLI_OK && inspect == NULL) {
        r = cli_fail("libdavy", "has no davy.inspect/1; install the libdavy of this program");
    }
    if (inspect != NULL) {
        cli_args named = *a;
        named.models[0] = a->inputs[0];
        named.n_models = 1;
        davy_source sources[CLI_MODELS_MAX];
        davy_model_desc desc;
        cli_model_desc(&named, NULL, sources, &desc);
        davy_text *json = NULL;
        const char *text = NULL;
        uint64_t bytes = 0;
        davy_result code = inspect->describe(s.context, &desc, &json);
        if (code >= 0) {
            code = s.api->text_get(json, &text, &bytes);
        }
        r = code < 0 ? cli_session_fail(&s, a->inputs[0], code) : show(a, text);
        s.api->text_release(json);
    }
    cli_session_close(&s);
    return r;
}
