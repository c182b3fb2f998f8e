/* list.h - every struct, member and constant of abi/davy.h, for dump.c. S(struct) comes before its F(struct, member) in
 * order; C(constant). dump.c finds a member that is missing here by the gap it leaves, check_layout.py a constant. */
#ifndef DV_TESTS_ABI_LIST_H
#define DV_TESTS_ABI_LIST_H

/* clang-format off */
#define DAVY_ABI_STRUCTS(S, F) \
    S(davy_error_info) \
    F(davy_error_info, struct_size) F(davy_error_info, code) F(davy_error_info, domain) F(davy_error_info, native) \
    F(davy_error_info, message) \
    S(davy_host) \
    F(davy_host, struct_size) F(davy_host, log_level) F(davy_host, user) F(davy_host, log) F(davy_host, alloc) \
    F(davy_host, free) F(davy_host, device_alloc) F(davy_host, device_free) \
    S(davy_option) \
    F(davy_option, key) F(davy_option, value) \
    S(davy_device_info) \
    F(davy_device_info, struct_size) F(davy_device_info, kind) F(davy_device_info, index) \
    F(davy_device_info, features) F(davy_device_info, uuid) F(davy_device_info, name) F(davy_device_info, selector) \
    F(davy_device_info, reason) F(davy_device_info, memory_total_bytes) F(davy_device_info, memory_free_bytes) \
    F(davy_device_info, compute_major) F(davy_device_info, compute_minor) F(davy_device_info, driver_version) \
    F(davy_device_info, cudnn_version) F(davy_device_info, import_mask) F(davy_device_info, reserved0) \
    S(davy_context_desc) \
    F(davy_context_desc, struct_size) F(davy_context_desc, abi_version) F(davy_context_desc, host) \
    F(davy_context_desc, device) F(davy_context_desc, cuda_context) F(davy_context_desc, device_budget_bytes) \
    F(davy_context_desc, host_budget_bytes) F(davy_context_desc, cache_dir) F(davy_context_desc, library_dir) \
    F(davy_context_desc, n_threads) F(davy_context_desc, flags) F(davy_context_desc, options) \
    F(davy_context_desc, n_options) F(davy_context_desc, reserved0) \
    S(davy_memory_info) \
    F(davy_memory_info, struct_size) F(davy_memory_info, reserved0) F(davy_memory_info, device_weights_bytes) \
    F(davy_memory_info, device_workspace_bytes) F(davy_memory_info, device_cache_bytes) \
    F(davy_memory_info, device_peak_bytes) F(davy_memory_info, host_weights_bytes) \
    F(davy_memory_info, host_workspace_bytes) F(davy_memory_info, host_peak_bytes) \
    F(davy_memory_info, device_budget_bytes) F(davy_memory_info, host_budget_bytes) \
    S(davy_source) \
    F(davy_source, struct_size) F(davy_source, role) F(davy_source, path) F(davy_source, name) F(davy_source, data) \
    F(davy_source, data_bytes) F(davy_source, user) F(davy_source, read) F(davy_source, read_bytes) \
    S(davy_model_desc) \
    F(davy_model_desc, struct_size) F(davy_model_desc, task) F(davy_model_desc, sources) \
    F(davy_model_desc, n_sources) F(davy_model_desc, source_stride) F(davy_model_desc, arch) \
    F(davy_model_desc, compute) F(davy_model_desc, flags) F(davy_model_desc, progress) \
    F(davy_model_desc, progress_user) F(davy_model_desc, options) F(davy_model_desc, n_options) \
    F(davy_model_desc, reserved0) \
    S(davy_model_info) \
    F(davy_model_info, struct_size) F(davy_model_info, task) F(davy_model_info, arch) F(davy_model_info, variant) \
    F(davy_model_info, compute) F(davy_model_info, features) F(davy_model_info, parameters) \
    F(davy_model_info, weight_bytes) F(davy_model_info, in_channels) F(davy_model_info, out_channels) \
    F(davy_model_info, latent_channels) F(davy_model_info, spatial_factor) F(davy_model_info, temporal_factor) \
    F(davy_model_info, scale_num) F(davy_model_info, scale_den) F(davy_model_info, size_multiple) \
    F(davy_model_info, size_min) F(davy_model_info, window_frames) F(davy_model_info, latency_frames) \
    F(davy_model_info, context_tokens) F(davy_model_info, latent_scale) F(davy_model_info, latent_shift) \
    S(davy_tensor) \
    F(davy_tensor, struct_size) F(davy_tensor, memory) F(davy_tensor, device) F(davy_tensor, dtype) \
    F(davy_tensor, layout) F(davy_tensor, channels) F(davy_tensor, range) F(davy_tensor, ndim) F(davy_tensor, data) \
    F(davy_tensor, byte_offset) F(davy_tensor, buffer) F(davy_tensor, shape) F(davy_tensor, stride_bytes) \
    F(davy_tensor, pts) \
    S(davy_run) \
    F(davy_run, struct_size) F(davy_run, flags) F(davy_run, stream) F(davy_run, seed) F(davy_run, timeout_ns) \
    F(davy_run, tile_width) F(davy_run, tile_height) F(davy_run, tile_overlap) F(davy_run, tile_frames) \
    F(davy_run, priority) F(davy_run, reserved0) F(davy_run, progress) F(davy_run, progress_user) \
    F(davy_run, options) F(davy_run, n_options) F(davy_run, reserved1) \
    S(davy_query) \
    F(davy_query, struct_size) F(davy_query, op) F(davy_query, input) F(davy_query, run) \
    S(davy_plan_info) \
    F(davy_plan_info, struct_size) F(davy_plan_info, ndim) F(davy_plan_info, shape) \
    F(davy_plan_info, workspace_bytes) F(davy_plan_info, flops) F(davy_plan_info, tiles_x) \
    F(davy_plan_info, tiles_y) F(davy_plan_info, tiles_t) F(davy_plan_info, tile_width) \
    F(davy_plan_info, tile_height) F(davy_plan_info, tile_frames) \
    S(davy_job_info) \
    F(davy_job_info, struct_size) F(davy_job_info, state) F(davy_job_info, done) F(davy_job_info, total) \
    F(davy_job_info, stage) F(davy_job_info, elapsed_ns) \
    S(davy_caption_params) \
    F(davy_caption_params, struct_size) F(davy_caption_params, reserved0) F(davy_caption_params, prompt) \
    F(davy_caption_params, system) F(davy_caption_params, stop) F(davy_caption_params, n_stop) \
    F(davy_caption_params, max_tokens) F(davy_caption_params, temperature) F(davy_caption_params, top_p) \
    F(davy_caption_params, top_k) F(davy_caption_params, repeat_penalty) F(davy_caption_params, seed) \
    F(davy_caption_params, max_pixels) F(davy_caption_params, max_tiles) F(davy_caption_params, context_tokens) \
    F(davy_caption_params, min_p) F(davy_caption_params, no_repeat_ngram) F(davy_caption_params, flags) \
    F(davy_caption_params, reserved1) F(davy_caption_params, video_fps) \
    S(davy_token_event) \
    F(davy_token_event, struct_size) F(davy_token_event, kind) F(davy_token_event, text) \
    F(davy_token_event, text_bytes) F(davy_token_event, index) F(davy_token_event, end) \
    S(davy_dialogue_info) \
    F(davy_dialogue_info, struct_size) F(davy_dialogue_info, turns) F(davy_dialogue_info, tokens_used) \
    F(davy_dialogue_info, tokens_max) F(davy_dialogue_info, prompt_tokens) F(davy_dialogue_info, image_tokens) \
    F(davy_dialogue_info, generated_tokens) F(davy_dialogue_info, end) F(davy_dialogue_info, kv_bytes) \
    F(davy_dialogue_info, flags) F(davy_dialogue_info, reserved0) F(davy_dialogue_info, seconds_to_first_token) \
    F(davy_dialogue_info, tokens_per_second) \
    S(davy_sequence_desc) \
    F(davy_sequence_desc, struct_size) F(davy_sequence_desc, op) F(davy_sequence_desc, input) \
    F(davy_sequence_desc, output) F(davy_sequence_desc, run) F(davy_sequence_desc, max_in_flight) \
    F(davy_sequence_desc, flags) \
    S(davy_sequence_info) \
    F(davy_sequence_info, struct_size) F(davy_sequence_info, max_in_flight) F(davy_sequence_info, frames_in) \
    F(davy_sequence_info, frames_out) F(davy_sequence_info, in_flight) F(davy_sequence_info, ready) \
    F(davy_sequence_info, latency_frames) F(davy_sequence_info, finished) F(davy_sequence_info, memory_bytes) \
    S(davy_api) \
    F(davy_api, struct_size) F(davy_api, abi_version) F(davy_api, version) F(davy_api, result_name) \
    F(davy_api, last_error) F(davy_api, get_extension) F(davy_api, device_count) F(davy_api, device_info) \
    F(davy_api, context_create) F(davy_api, context_release) F(davy_api, context_memory) F(davy_api, context_budget) \
    F(davy_api, context_trim) F(davy_api, model_open) F(davy_api, model_release) F(davy_api, model_info) \
    F(davy_api, model_load) F(davy_api, model_unload) F(davy_api, plan_query) F(davy_api, vae_encode) \
    F(davy_api, vae_decode) F(davy_api, upscale) F(davy_api, text_get) F(davy_api, text_release) \
    F(davy_api, job_wait) F(davy_api, job_info) F(davy_api, job_cancel) F(davy_api, job_error) \
    F(davy_api, job_release) F(davy_api, buffer_alloc) F(davy_api, buffer_tensor) F(davy_api, buffer_release) \
    F(davy_api, caption) F(davy_api, dialogue_open) F(davy_api, dialogue_add_image) \
    F(davy_api, dialogue_add_text) F(davy_api, dialogue_generate) F(davy_api, dialogue_read) \
    F(davy_api, dialogue_text) F(davy_api, dialogue_rewind) F(davy_api, dialogue_info) \
    F(davy_api, dialogue_release) F(davy_api, sequence_open) F(davy_api, sequence_push) \
    F(davy_api, sequence_pull) F(davy_api, sequence_finish) F(davy_api, sequence_reset) F(davy_api, sequence_info) \
    F(davy_api, sequence_release) F(davy_api, caption_info) \
    S(davy_inspect_1) \
    F(davy_inspect_1, struct_size) F(davy_inspect_1, reserved0) F(davy_inspect_1, describe) \
    S(davy_profile_1) \
    F(davy_profile_1, struct_size) F(davy_profile_1, reserved0) F(davy_profile_1, start) F(davy_profile_1, stop)

#define DAVY_ABI_CONSTANTS(C) \
    C(DAVY_ABI_1_0) C(DAVY_ABI_VERSION) C(DAVY_OK) C(DAVY_PENDING) C(DAVY_NEED_INPUT) C(DAVY_FULL) C(DAVY_END) \
    C(DAVY_E_INVALID) C(DAVY_E_STRUCT) C(DAVY_E_STATE) C(DAVY_E_BUSY) C(DAVY_E_NOMEM_HOST) C(DAVY_E_NOMEM_DEVICE) \
    C(DAVY_E_BUDGET) C(DAVY_E_CANCELLED) C(DAVY_E_TIMEOUT) C(DAVY_E_IO) C(DAVY_E_NOT_FOUND) C(DAVY_E_FORMAT) \
    C(DAVY_E_UNSAFE) C(DAVY_E_ARCH) C(DAVY_E_TENSOR) C(DAVY_E_SHAPE) C(DAVY_E_UNSUPPORTED) C(DAVY_E_DEVICE) \
    C(DAVY_E_DEVICE_LOST) C(DAVY_E_LIBRARY) C(DAVY_E_INTEROP) C(DAVY_E_TOKENIZER) C(DAVY_E_CONTEXT_FULL) \
    C(DAVY_E_OPTION) C(DAVY_E_FORKED) C(DAVY_E_INTERNAL) C(DAVY_DOMAIN_DAVY) C(DAVY_DOMAIN_OS) C(DAVY_DOMAIN_CUDA) \
    C(DAVY_DOMAIN_CUDNN) C(DAVY_DOMAIN_CUBLASLT) C(DAVY_DOMAIN_JSON) C(DAVY_DOMAIN_SAFETENSORS) \
    C(DAVY_DOMAIN_PICKLE) C(DAVY_DOMAIN_GGUF) C(DAVY_LOG_NONE) C(DAVY_LOG_ERROR) C(DAVY_LOG_MISUSE) C(DAVY_LOG_WARN) \
    C(DAVY_LOG_INFO) C(DAVY_LOG_DEBUG) C(DAVY_DEVICE_CPU) C(DAVY_DEVICE_CUDA) C(DAVY_FEATURE_FP16) \
    C(DAVY_FEATURE_BF16) C(DAVY_FEATURE_FP8) C(DAVY_FEATURE_INT8) C(DAVY_CONTEXT_NO_ENVIRONMENT) \
    C(DAVY_TASK_UPSCALE) C(DAVY_TASK_VAE) C(DAVY_TASK_CAPTION) C(DAVY_DTYPE_AUTO) C(DAVY_DTYPE_F32) \
    C(DAVY_DTYPE_F16) C(DAVY_DTYPE_BF16) C(DAVY_DTYPE_U8) C(DAVY_DTYPE_U16) C(DAVY_DTYPE_INT8) C(DAVY_DTYPE_INT4) \
    C(DAVY_DTYPE_FP8) C(DAVY_SOURCE_AUTO) C(DAVY_SOURCE_WEIGHTS) C(DAVY_SOURCE_CONFIG) C(DAVY_SOURCE_TOKENIZER) \
    C(DAVY_SOURCE_PREPROCESSOR) C(DAVY_SOURCE_DIRECTORY) C(DAVY_MODEL_NO_MMAP) C(DAVY_MODEL_NO_PICKLE) \
    C(DAVY_MODEL_ENCODES) C(DAVY_MODEL_DECODES) C(DAVY_MODEL_UPSCALES) C(DAVY_MODEL_MOMENTS) \
    C(DAVY_MODEL_TILES_EXACT) C(DAVY_MODEL_CAPTIONS) C(DAVY_MEMORY_HOST) C(DAVY_MEMORY_HOST_PINNED) C(DAVY_MEMORY_CUDA) \
    C(DAVY_MEMORY_CUDA_ARRAY) C(DAVY_MEMORY_BUFFER) C(DAVY_LAYOUT_HWC) C(DAVY_LAYOUT_CHW) C(DAVY_LAYOUT_HW) \
    C(DAVY_LAYOUT_NHWC) C(DAVY_LAYOUT_NCHW) C(DAVY_LAYOUT_NTHWC) C(DAVY_LAYOUT_NCTHW) C(DAVY_CHANNELS_RGB) \
    C(DAVY_CHANNELS_BGR) C(DAVY_CHANNELS_RGBA) C(DAVY_CHANNELS_BGRA) C(DAVY_CHANNELS_GRAY) C(DAVY_CHANNELS_GRAYA) \
    C(DAVY_CHANNELS_LATENT) C(DAVY_RANGE_AUTO) C(DAVY_RANGE_FULL) C(DAVY_RANGE_UNIT) C(DAVY_RANGE_SIGNED_UNIT) \
    C(DAVY_RANGE_RAW) C(DAVY_RUN_SCALED_LATENT) C(DAVY_RUN_MOMENTS) C(DAVY_RUN_SAMPLE) C(DAVY_RUN_STREAM_ORDERED) \
    C(DAVY_RUN_FAST) C(DAVY_RUN_DROP_ALPHA) C(DAVY_OP_VAE_ENCODE) C(DAVY_OP_VAE_DECODE) C(DAVY_OP_UPSCALE) \
    C(DAVY_ROLE_USER) C(DAVY_ROLE_SYSTEM) C(DAVY_TOKEN_TEXT) C(DAVY_TOKEN_IMAGE_DONE) \
    C(DAVY_TOKEN_END_OF_TURN) C(DAVY_TURN_STOP) C(DAVY_TURN_LENGTH) C(DAVY_DIALOGUE_SMALLER) \
    C(DAVY_DIALOGUE_SHORTER) C(DAVY_DIALOGUE_UNANSWERED) C(DAVY_CAPTION_PUBLISHED) C(DAVY_CAPTION_THOUGHTS) \
    C(DAVY_CAPTION_LOOKUP) C(DAVY_CAPTION_NO_LOOKUP) C(DAVY_CAPTION_PARTIAL)
/* clang-format on */

#endif
