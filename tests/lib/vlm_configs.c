/* vlm_configs.c - see vlm_configs.h. */
#include "tests/lib/vlm_configs.h"

dv_vlm_json json_text(const char *name, const char *text) {
    return (dv_vlm_json){.text = text, .bytes = text != NULL ? strlen(text) : 0, .name = name};
}

davy_result parse_config(const char *config, const char *preprocessor, dv_vlm_config *out) {
    const dv_vlm_files f = {.config = json_text("config.json", config),
                            .preprocessor = json_text("preprocessor_config.json", preprocessor),
                            .processor = {.name = "processor_config.json"},
                            .video = {.name = "video_preprocessor_config.json"},
                            .generation = {.name = "generation_config.json"}};
    return dv_vlm_config_parse(&f, out);
}
