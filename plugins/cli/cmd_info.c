/* cmd_info.c - davy devices and davy inspect: what the library knows about the machine and about a file. */
#include <stdio.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/commands.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"

static void print_device(const davy_device_info *d) {
    printf("%-8s %s", d->selector, d->name);
    if (d->memory_total_bytes > 0) {
        printf(", %.1f GiB", (double)d->memory_total_bytes / (double)(1u << 30));
    }
    if (d->kind == DAVY_DEVICE_CUDA) {
        printf(", compute %d.%d", d->compute_major, d->compute_minor);
    }
    const struct {
        uint32_t bit;
        const char *name;
    } features[] = {{DAVY_FEATURE_FP16, "fp16"},
                    {DAVY_FEATURE_BF16, "bf16"},
                    {DAVY_FEATURE_FP8, "fp8"},
                    {DAVY_FEATURE_INT8, "int8"}};
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if ((d->features & features[i].bit) != 0) {
            printf(", %s", features[i].name);
        }
    }
    if (d->reason[0] != 0) {
        printf("; not usable: %s", d->reason);
    }
    printf("\n");
}

static void add_device(cJSON *list, const davy_device_info *d) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "device", d->selector);
    cJSON_AddStringToObject(j, "kind", d->kind == DAVY_DEVICE_CUDA ? "cuda" : "cpu");
    cJSON_AddStringToObject(j, "name", d->name);
    cJSON_AddBoolToObject(j, "usable", d->reason[0] == 0);
    cJSON_AddStringToObject(j, "reason", d->reason);
    cJSON_AddNumberToObject(j, "memory_total_bytes", (double)d->memory_total_bytes);
    cJSON_AddNumberToObject(j, "memory_free_bytes", (double)d->memory_free_bytes);
    cJSON_AddBoolToObject(j, "fp16", (d->features & DAVY_FEATURE_FP16) != 0);
    cJSON_AddBoolToObject(j, "bf16", (d->features & DAVY_FEATURE_BF16) != 0);
    cJSON_AddNumberToObject(j, "compute_major", d->compute_major);
    cJSON_AddNumberToObject(j, "compute_minor", d->compute_minor);
    cJSON_AddItemToArray(list, j);
}

static int list_devices(const cli_session *s, cJSON *list) {
    int32_t count = 0;
    davy_result r = s->api->device_count(NULL, &count);
    for (int32_t i = 0; r >= 0 && i < count; i++) {
        davy_device_info d = {.struct_size = sizeof d};
        r = s->api->device_info(NULL, i, &d);
        if (r < 0) {
            break;
        }
        if (list != NULL) {
            add_device(list, &d);
        } else {
            print_device(&d);
        }
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

/* Whole numbers with thousands apart, others as short as they are exact enough. */
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

/* A shape is "64 x 3 x 3 x 3"; other lists are separated by commas; of an object only the values are told. */
static void print_value(const cJSON *v) {
    if (cJSON_IsString(v)) {
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

/* One line a member; a member that is an object, or a list of objects, gets its own indented lines. */
static void print_table(const cJSON *object, int indent) {
    const cJSON *v = NULL;
    cJSON_ArrayForEach(v, object) {
        char label[64];
        snprintf(label, sizeof label, "%s", v->string != NULL ? v->string : "-");
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

/* Prints the description; an unknown file is a failure, told in one line too. */
static int show(const cli_args *a, const char *text) {
    cJSON *j = cJSON_Parse(text);
    if (!cJSON_IsObject(j)) {
        cJSON_Delete(j);
        return cli_fail(a->inputs[0], "the library's description is no JSON object");
    }
    if (a->json) {
        char *pretty = cJSON_Print(j);
        printf("%s\n", pretty != NULL ? pretty : text);
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
    int r = cli_session_load(&s);
    if (r == CLI_OK) {
        r = cli_session_context(&s, a);
    }
    const davy_inspect_1 *inspect = r == CLI_OK ? s.api->get_extension("davy.inspect/1") : NULL;
    if (r == CLI_OK && inspect == NULL) {
        r = cli_fail("libdavy", "this library cannot inspect files");
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
