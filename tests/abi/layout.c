/* layout.c - sizes, offsets and slots; see layout.h. */
#include "tests/abi/layout.h"

/* ==== 1.0 ======================================================================================================== */

/* davy_error_info */
SIZE(davy_error_info, message, 512);
AT(davy_error_info, struct_size, 0);
AT(davy_error_info, code, 4);
AT(davy_error_info, domain, 8);
AT(davy_error_info, native, 12);
AT(davy_error_info, message, 16);

/* davy_host */
SIZE(davy_host, device_free, 56);
AT(davy_host, struct_size, 0);
AT(davy_host, log_level, 4);
AT(davy_host, user, 8);
AT(davy_host, log, 16);
AT(davy_host, alloc, 24);
AT(davy_host, free, 32);
AT(davy_host, device_alloc, 40);
AT(davy_host, device_free, 48);

/* davy_option */
SIZE(davy_option, value, 16);
AT(davy_option, key, 0);
AT(davy_option, value, 8);

/* davy_device_info */
SIZE(davy_device_info, reserved0, 488);
AT(davy_device_info, struct_size, 0);
AT(davy_device_info, kind, 4);
AT(davy_device_info, index, 8);
AT(davy_device_info, features, 12);
AT(davy_device_info, uuid, 16);
AT(davy_device_info, name, 32);
AT(davy_device_info, selector, 160);
AT(davy_device_info, reason, 192);
AT(davy_device_info, memory_total_bytes, 448);
AT(davy_device_info, memory_free_bytes, 456);
AT(davy_device_info, compute_major, 464);
AT(davy_device_info, compute_minor, 468);
AT(davy_device_info, driver_version, 472);
AT(davy_device_info, cudnn_version, 476);
AT(davy_device_info, import_mask, 480);
AT(davy_device_info, reserved0, 484);

/* davy_context_desc */
SIZE(davy_context_desc, reserved0, 88);
AT(davy_context_desc, struct_size, 0);
AT(davy_context_desc, abi_version, 4);
AT(davy_context_desc, host, 8);
AT(davy_context_desc, device, 16);
AT(davy_context_desc, cuda_context, 24);
AT(davy_context_desc, device_budget_bytes, 32);
AT(davy_context_desc, host_budget_bytes, 40);
AT(davy_context_desc, cache_dir, 48);
AT(davy_context_desc, library_dir, 56);
AT(davy_context_desc, n_threads, 64);
AT(davy_context_desc, flags, 68);
AT(davy_context_desc, options, 72);
AT(davy_context_desc, n_options, 80);
AT(davy_context_desc, reserved0, 84);

/* davy_memory_info */
SIZE(davy_memory_info, host_budget_bytes, 80);
AT(davy_memory_info, struct_size, 0);
AT(davy_memory_info, reserved0, 4);
AT(davy_memory_info, device_weights_bytes, 8);
AT(davy_memory_info, device_workspace_bytes, 16);
AT(davy_memory_info, device_cache_bytes, 24);
AT(davy_memory_info, device_peak_bytes, 32);
AT(davy_memory_info, host_weights_bytes, 40);
AT(davy_memory_info, host_workspace_bytes, 48);
AT(davy_memory_info, host_peak_bytes, 56);
AT(davy_memory_info, device_budget_bytes, 64);
AT(davy_memory_info, host_budget_bytes, 72);

/* davy_source */
SIZE(davy_source, read_bytes, 64);
AT(davy_source, struct_size, 0);
AT(davy_source, role, 4);
AT(davy_source, path, 8);
AT(davy_source, name, 16);
AT(davy_source, data, 24);
AT(davy_source, data_bytes, 32);
AT(davy_source, user, 40);
AT(davy_source, read, 48);
AT(davy_source, read_bytes, 56);

/* davy_model_desc */
SIZE(davy_model_desc, reserved0, 72);
AT(davy_model_desc, struct_size, 0);
AT(davy_model_desc, task, 4);
AT(davy_model_desc, sources, 8);
AT(davy_model_desc, n_sources, 16);
AT(davy_model_desc, source_stride, 20);
AT(davy_model_desc, arch, 24);
AT(davy_model_desc, compute, 32);
AT(davy_model_desc, flags, 36);
AT(davy_model_desc, progress, 40);
AT(davy_model_desc, progress_user, 48);
AT(davy_model_desc, options, 56);
AT(davy_model_desc, n_options, 64);
AT(davy_model_desc, reserved0, 68);

/* davy_model_info */
SIZE(davy_model_info, latent_shift, 216);
AT(davy_model_info, struct_size, 0);
AT(davy_model_info, task, 4);
AT(davy_model_info, arch, 8);
AT(davy_model_info, variant, 72);
AT(davy_model_info, compute, 136);
AT(davy_model_info, features, 140);
AT(davy_model_info, parameters, 144);
AT(davy_model_info, weight_bytes, 152);
AT(davy_model_info, in_channels, 160);
AT(davy_model_info, out_channels, 164);
AT(davy_model_info, latent_channels, 168);
AT(davy_model_info, spatial_factor, 172);
AT(davy_model_info, temporal_factor, 176);
AT(davy_model_info, scale_num, 180);
AT(davy_model_info, scale_den, 184);
AT(davy_model_info, size_multiple, 188);
AT(davy_model_info, size_min, 192);
AT(davy_model_info, window_frames, 196);
AT(davy_model_info, latency_frames, 200);
AT(davy_model_info, context_tokens, 204);
AT(davy_model_info, latent_scale, 208);
AT(davy_model_info, latent_shift, 212);

/* davy_tensor */
SIZE(davy_tensor, pts, 160);
AT(davy_tensor, struct_size, 0);
AT(davy_tensor, memory, 4);
AT(davy_tensor, device, 8);
AT(davy_tensor, dtype, 12);
AT(davy_tensor, layout, 16);
AT(davy_tensor, channels, 20);
AT(davy_tensor, range, 24);
AT(davy_tensor, ndim, 28);
AT(davy_tensor, data, 32);
AT(davy_tensor, byte_offset, 40);
AT(davy_tensor, buffer, 48);
AT(davy_tensor, shape, 56);
AT(davy_tensor, stride_bytes, 104);
AT(davy_tensor, pts, 152);

/* davy_run */
SIZE(davy_run, reserved1, 88);
AT(davy_run, struct_size, 0);
AT(davy_run, flags, 4);
AT(davy_run, stream, 8);
AT(davy_run, seed, 16);
AT(davy_run, timeout_ns, 24);
AT(davy_run, tile_width, 32);
AT(davy_run, tile_height, 36);
AT(davy_run, tile_overlap, 40);
AT(davy_run, tile_frames, 44);
AT(davy_run, priority, 48);
AT(davy_run, reserved0, 52);
AT(davy_run, progress, 56);
AT(davy_run, progress_user, 64);
AT(davy_run, options, 72);
AT(davy_run, n_options, 80);
AT(davy_run, reserved1, 84);

/* davy_query */
SIZE(davy_query, run, 24);
AT(davy_query, struct_size, 0);
AT(davy_query, op, 4);
AT(davy_query, input, 8);
AT(davy_query, run, 16);

/* davy_plan_info */
SIZE(davy_plan_info, tile_frames, 96);
AT(davy_plan_info, struct_size, 0);
AT(davy_plan_info, ndim, 4);
AT(davy_plan_info, shape, 8);
AT(davy_plan_info, workspace_bytes, 56);
AT(davy_plan_info, flops, 64);
AT(davy_plan_info, tiles_x, 72);
AT(davy_plan_info, tiles_y, 76);
AT(davy_plan_info, tiles_t, 80);
AT(davy_plan_info, tile_width, 84);
AT(davy_plan_info, tile_height, 88);
AT(davy_plan_info, tile_frames, 92);

/* davy_job_info */
SIZE(davy_job_info, elapsed_ns, 64);
AT(davy_job_info, struct_size, 0);
AT(davy_job_info, state, 4);
AT(davy_job_info, done, 8);
AT(davy_job_info, total, 16);
AT(davy_job_info, stage, 24);
AT(davy_job_info, elapsed_ns, 56);

/* davy_caption_params */
SIZE(davy_caption_params, video_fps, 104);
AT(davy_caption_params, struct_size, 0);
AT(davy_caption_params, reserved0, 4);
AT(davy_caption_params, prompt, 8);
AT(davy_caption_params, system, 16);
AT(davy_caption_params, stop, 24);
AT(davy_caption_params, n_stop, 32);
AT(davy_caption_params, max_tokens, 36);
AT(davy_caption_params, temperature, 40);
AT(davy_caption_params, top_p, 44);
AT(davy_caption_params, top_k, 48);
AT(davy_caption_params, repeat_penalty, 52);
AT(davy_caption_params, seed, 56);
AT(davy_caption_params, max_pixels, 64);
AT(davy_caption_params, max_tiles, 72);
AT(davy_caption_params, context_tokens, 76);
AT(davy_caption_params, min_p, 80);
AT(davy_caption_params, no_repeat_ngram, 84);
AT(davy_caption_params, flags, 88);
AT(davy_caption_params, reserved1, 92);
AT(davy_caption_params, video_fps, 96);

/* davy_token_event */
SIZE(davy_token_event, end, 32);
AT(davy_token_event, struct_size, 0);
AT(davy_token_event, kind, 4);
AT(davy_token_event, text, 8);
AT(davy_token_event, text_bytes, 16);
AT(davy_token_event, index, 24);
AT(davy_token_event, end, 28);

/* davy_dialogue_info */
SIZE(davy_dialogue_info, tokens_per_second, 64);
AT(davy_dialogue_info, struct_size, 0);
AT(davy_dialogue_info, turns, 4);
AT(davy_dialogue_info, tokens_used, 8);
AT(davy_dialogue_info, tokens_max, 12);
AT(davy_dialogue_info, prompt_tokens, 16);
AT(davy_dialogue_info, image_tokens, 20);
AT(davy_dialogue_info, generated_tokens, 24);
AT(davy_dialogue_info, end, 28);
AT(davy_dialogue_info, kv_bytes, 32);
AT(davy_dialogue_info, flags, 40);
AT(davy_dialogue_info, reserved0, 44);
AT(davy_dialogue_info, seconds_to_first_token, 48);
AT(davy_dialogue_info, tokens_per_second, 56);

/* davy_sequence_desc */
SIZE(davy_sequence_desc, flags, 40);
AT(davy_sequence_desc, struct_size, 0);
AT(davy_sequence_desc, op, 4);
AT(davy_sequence_desc, input, 8);
AT(davy_sequence_desc, output, 16);
AT(davy_sequence_desc, run, 24);
AT(davy_sequence_desc, max_in_flight, 32);
AT(davy_sequence_desc, flags, 36);

/* davy_sequence_info */
SIZE(davy_sequence_info, memory_bytes, 48);
AT(davy_sequence_info, struct_size, 0);
AT(davy_sequence_info, max_in_flight, 4);
AT(davy_sequence_info, frames_in, 8);
AT(davy_sequence_info, frames_out, 16);
AT(davy_sequence_info, in_flight, 24);
AT(davy_sequence_info, ready, 28);
AT(davy_sequence_info, latency_frames, 32);
AT(davy_sequence_info, finished, 36);
AT(davy_sequence_info, memory_bytes, 40);

/* davy_api: the table. Slots count pointers after struct_size and abi_version. */
SIZE(davy_api, buffer_release, 248);
AT(davy_api, struct_size, 0);
AT(davy_api, abi_version, 4);
SLOT(0, version);
SLOT(1, result_name);
SLOT(2, last_error);
SLOT(3, get_extension);
SLOT(4, device_count);
SLOT(5, device_info);
SLOT(6, context_create);
SLOT(7, context_release);
SLOT(8, context_memory);
SLOT(9, context_budget);
SLOT(10, context_trim);
SLOT(11, model_open);
SLOT(12, model_release);
SLOT(13, model_info);
SLOT(14, model_load);
SLOT(15, model_unload);
SLOT(16, plan_query);
SLOT(17, vae_encode);
SLOT(18, vae_decode);
SLOT(19, upscale);
SLOT(20, text_get);
SLOT(21, text_release);
SLOT(22, job_wait);
SLOT(23, job_info);
SLOT(24, job_cancel);
SLOT(25, job_error);
SLOT(26, job_release);
SLOT(27, buffer_alloc);
SLOT(28, buffer_tensor);
SLOT(29, buffer_release);
SLOT(30, caption);
SLOT(31, dialogue_open);
SLOT(32, dialogue_add_image);
SLOT(33, dialogue_add_text);
SLOT(34, dialogue_generate);
SLOT(35, dialogue_read);
SLOT(36, dialogue_text);
SLOT(37, dialogue_rewind);
SLOT(38, dialogue_info);
SLOT(39, dialogue_release);
SLOT(40, sequence_open);
SLOT(41, sequence_push);
SLOT(42, sequence_pull);
SLOT(43, sequence_finish);
SLOT(44, sequence_reset);
SLOT(45, sequence_info);
SLOT(46, sequence_release);
SLOT(47, caption_info);

/* davy_inspect_1 */
SIZE(davy_inspect_1, describe, 16);
AT(davy_inspect_1, struct_size, 0);
AT(davy_inspect_1, reserved0, 4);
AT(davy_inspect_1, describe, 8);

/* davy_profile_1 */
SIZE(davy_profile_1, stop, 24);
AT(davy_profile_1, struct_size, 0);
AT(davy_profile_1, reserved0, 4);
AT(davy_profile_1, start, 8);
AT(davy_profile_1, stop, 16);
