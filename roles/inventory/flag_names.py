"""SGLang's flags, without --, by the values that they take.

Written by python -m docs.engine_names from the wheels of 0.5.23 and 0.5.16: do not edit.
"""

from __future__ import annotations

from roles.inventory.names import names

VERSION = "0.5.23"

SWITCHES = names("""
abort-on-priority-when-disabled allow-auto-truncate checkpoint-engine-wait-weights-before-ready
constrained-json-disable-any-whitespace debug-cuda-graph delete-ckpt-after-loading
disable-aiter-allreduce-fusion-in-decode disable-aiter-allreduce-fusion-in-prefill
disable-attn-tp-gather disable-chunked-prefix-cache disable-cuda-graph
disable-cuda-graph-padding disable-custom-all-reduce disable-decode-cuda-graph
disable-fast-image-processor disable-flashinfer-autotune
disable-flashinfer-cutlass-moe-fp4-allgather disable-hybrid-swa-memory
disable-outlines-disk-cache disable-overlap-schedule disable-prefill-cuda-graph
disable-priority-preemption disable-radix-cache disable-shared-experts-fusion
disable-tokenizer-batch-decode disaggregation-decode-enable-offload-kvcache
disaggregation-decode-enable-radix-cache disaggregation-enable-kv-checksum
enable-adaptive-dispatch-to-encoder enable-aiter-allreduce-fusion enable-amd-monokernel
enable-attn-tp-input-scattered enable-broadcast-mm-inputs-process enable-cache-report
enable-cp-decode-attn-tp enable-cudagraph-gc enable-custom-logit-processor
enable-deepseek-v4-fp4-indexer enable-dense-mlp-attn-tp enable-deterministic-inference
enable-dp-attention enable-dp-attention-local-control-broadcast enable-dp-lm-head
enable-draft-weights-cpu-backup enable-dsa-cache-layer-split enable-dynamic-batch-tokenizer
enable-dynamic-chunking enable-elastic-expert-backup enable-encoder-swa-bounded-replay
enable-eplb enable-flashinfer-allreduce-fusion enable-flexkv enable-forward-pass-metrics
enable-fp32-lm-head enable-fused-moe-sum-all-reduce enable-hicache enable-hierarchical-cache
enable-hisparse enable-http-worker-reuseport enable-http2 enable-int8-mamba-checkpoint
enable-kv-cache-sharding enable-layernorm-sp enable-layerwise-nvtx-marker enable-lean-attention
enable-linear-replayssm enable-linear-replayssm-spec enable-linker-mla-dedup enable-lmcache
enable-lora enable-lora-overlap-loading enable-mamba-cache-stochastic-rounding
enable-megamoe-for-layernorm-sp enable-memory-saver enable-metrics
enable-metrics-for-all-schedulers enable-mfu-metrics enable-mis enable-mixed-chunk
enable-mm-global-cache enable-mscclpp enable-multi-layer-eagle enable-multimodal
enable-nccl-nvls enable-nvidia-megakernel enable-p2p-check enable-page-major-kv-layout
enable-paged-experts enable-pd-role-switch enable-pdmux enable-precise-embedding-interpolation
enable-prefill-cp enable-prefill-delayer enable-prefix-mm-cache enable-priority-scheduling
enable-profile-cuda-graph enable-quant-communications enable-request-time-stats-logging
enable-response-store enable-return-aux-hidden-states enable-return-hidden-states
enable-return-indexer-topk enable-return-routed-experts enable-scattered-sconv
enable-session-radix-cache enable-shared-experts-attn-tp enable-single-batch-overlap
enable-ssl-refresh enable-streaming-session enable-strict-thinking enable-symm-mem
enable-tokenizer-batch-encode enable-torch-compile enable-torch-compile-debug-mode
enable-torch-symm-mem enable-trace enable-two-batch-overlap enable-unified-cache-external-linker
enable-unified-memory enable-w4a4-mxfp4-megamoe enable-waterfill enable-watermark
enable-weights-cpu-backup encoder-only enforce-disable-flashinfer-allreduce-fusion
enforce-shared-experts-fusion export-metrics-to-file flashinfer-mla-disable-ragged grpc-mode
incremental-streaming-output is-embedding language-model-only language-only log-requests
lora-use-virtual-experts mlx-enable-sampling pre-warm-nccl prefill-only-disable-kv-cache
quantize-and-serve remote-instance-weight-loader-start-seed-via-transfer-engine return-input-ids
return-output-ids schedule-low-priority-values-first show-time-cost skip-server-warmup
skip-tokenizer-init sleep-on-idle smg-grpc-mode speculative-adaptive
speculative-dspark-align-verify-tokens-to-graph-tier speculative-use-block-verification
speculative-use-rejection-sampling stream-response-default-include-usage strip-thinking-cache
triton-attention-reduce-in-fp32 trust-mm-content-hashes trust-remote-code
trust-request-chat-template use-ray weight-loader-disable-mmap
weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
""")
"""true or false"""

OFF_FORMS = names("""
dcp-replicate-q-proj dllm-fdfo enable-decoder-swa-bounded-replay enable-dsa-fused-indexer
enable-fused-qk-norm-rope enable-tf32-matmul enable-tp-lm-head-all-to-all
experts-shared-outer-loras lora-strict-loading mm-enable-dp-encoder ple-offload-embedding
speculative-enable-w4a4-mxfp4-megamoe
""")
"""Switches that have a --no- form."""

WHOLE = names("""
asr-max-buffer-seconds asr-max-concurrent-sessions attention-context-parallel-size
attention-data-parallel-size attn-cp-size attn-dp-size base-gpu-id batch-notify-size
c128-page-size chunked-prefill-size constrained-json-max-whitespace-cnt cpu-offload-gb
cuda-graph-max-bs-decode cuda-graph-max-bs-prefill cuda-graph-max-seq-len-prefill
data-parallel-size dcp-size decode-context-parallel-size decode-log-interval decoupled-spec-rank
default-priority-value detokenizer-worker-num disaggregation-bootstrap-port
disaggregation-decode-extra-slots disaggregation-decode-polling-interval dist-timeout dp-size
dsa-triton-union dwdp-size dynamic-batch-tokenizer-batch-size elastic-ep-initial-size
elastic-ep-join-rank-offset encoder-bootstrap-port engine-info-bootstrap-port ep
ep-num-redundant-experts ep-size eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations
expert-distribution-recorder-buffer-size expert-parallel-size gated-launch-port gpu-id-step
grpc-http-sidecar-port grpc-port grpc-response-timeout-secs hicache-size
hicache-storage-prefetch-retry-max-attempts hicache-storage-prefetch-retry-poll-interval
http2-initial-connection-window-size http2-max-concurrent-streams int8-mamba-ckpt-size
kt-cpuinfer kt-max-deferred-experts-per-token kt-num-gpu-experts kt-threadpool-count
kv-canary-sweep-interval linear-replayssm-cache-len load-snapshot-publish-interval
log-requests-level mamba-cache-philox-rounds mamba-max-states-per-path mamba-track-interval
max-ep-size max-loaded-loras max-lora-chunk-size max-lora-rank max-loras-per-batch
max-mamba-cache-size max-queued-requests max-running-requests media-url-max-file-size-mb
min-free-slots-delay mm-io-worker-num mm-preprocess-cache-size-mb mm-processor-worker-num
moe-data-parallel-size moe-dense-tp-size moe-dp-size nccl-port nnodes node-rank
num-continuous-decode-steps num-reserved-decode-tokens offload-group-size offload-num-in-group
offload-prefetch-step optimistic-prefill-attempts page-size paged-experts-num-resident
pipeline-parallel-size port pp-async-batch-depth pp-max-micro-batch-size pp-size
prefill-decode-interval prefill-decode-interval-min-bs prefill-delayer-max-delay-passes
prefill-max-requests priority-scheduling-preemption-threshold random-seed
remote-instance-weight-loader-seed-instance-service-port sampling-mask-max-tokens
scheduler-recv-interval shared-experts-tp-size sm-group-num smg-http-sidecar-port
speculative-dflash-block-size speculative-domino-candidate-pool-size speculative-draft-sink-size
speculative-draft-window-size speculative-dspark-block-size speculative-eagle-topk
speculative-ngram-capacity speculative-ngram-external-corpus-max-tokens
speculative-ngram-external-sam-budget speculative-ngram-max-bfs-breadth
speculative-ngram-max-trie-depth speculative-ngram-min-bfs-breadth speculative-num-draft-tokens
speculative-num-steps stream-interval swa-prefix-tails tensor-parallel-size tokenizer-worker-num
torch-compile-max-bs tp-size triton-attention-num-kv-splits triton-attention-split-tile-size
weight-cache-timeout weight-loader-prefetch-num-threads
""")
"""A whole number."""

SIZES = names("""
context-bucket context-length cuda-graph-prefill-max-context max-prefill-tokens max-total-tokens
""")
"""A whole number; 64k and 1Mi are numbers, too."""

NUMBERS = names("""
disaggregation-decode-host-receive-threshold dynamic-batch-tokenizer-batch-timeout
elastic-ep-scale-timeout eplb-min-rebalancing-utilization-threshold gc-warning-threshold-secs
hicache-host-memory-fraction hicache-ratio lora-drain-wait-threshold mamba-full-memory-ratio
mem-fraction-static prefill-delayer-max-delay-ms prefill-delayer-queue-min-ratio
prefill-delayer-token-usage-low-watermark schedule-conservativeness soft-watchdog-timeout
speculative-accept-threshold-acc speculative-accept-threshold-single swa-full-tokens-ratio
tbo-token-distribution-threshold watchdog-timeout
""")
"""Any number."""

LISTS = names("""
allowed-media-domains bucket-e2e-request-latency bucket-inter-token-latency
bucket-time-to-first-token cuda-graph-bs-decode cuda-graph-bs-prefill custom-weight-loader
debug-tensor-dump-layers encoder-register-urls encoder-urls flashinfer-autotune-skip-ops
gc-threshold generation-tokens-buckets log-requests-target lora-paths lora-target-modules
model-checksum monokernel-backend numa-node prefill-delayer-forward-passes-buckets
prefill-delayer-wait-seconds-buckets prompt-tokens-buckets return-aux-hidden-state-layer-ids
tokenizer-metrics-allowed-custom-labels uvicorn-access-log-exclude-prefixes
""")
"""One value or several."""

JSON = names("""
decoupled-spec-connect-endpoints default-chat-template-kwargs extra-metric-labels forward-hooks
limit-mm-data-per-request mm-process-config preferred-sampling-params
radix-eviction-policy-config remote-instance-weight-loader-send-weights-group-ports sidecar-args
unified-cache-external-linker-config
""")
"""A mapping or a list, as JSON."""

TEXTS = names("""
admin-api-key api-key attention-backend bf16-gemm-backend boundary-reduction chat-template
completion-template config constrained-json-whitespace-pattern cp-strategy crash-dump-folder
cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-config dcp-comm-backend
debug-tensor-dump-input-file debug-tensor-dump-output-folder decode-attention-backend
decoupled-spec-bind-endpoint decoupled-spec-role decrypted-config-file
decrypted-draft-config-file deepep-config deepep-dispatcher-output-dtype deepep-mode
deepep-v2-mode device disaggregation-decode-allocation-policy
disaggregation-decode-retraction-backup disaggregation-ib-device disaggregation-mode
disaggregation-transfer-backend dist-init-addr dllm-algorithm dllm-algorithm-config download-dir
dsa-decode-backend dsa-paged-mqa-logits-backend dsa-prefill-backend dsa-topk-backend
dsv4-attn-backend dsv4-prefill-backend dtype elastic-ep-backend elastic-ep-join-mode
encoder-transfer-backend ep-dispatch-algorithm eplb-algorithm expert-balancedness-report-mode
expert-distribution-recorder-mode export-metrics-to-file-dir fastapi-root-path file-storage-path
flashinfer-a2a-dispatch-type flashinfer-allreduce-fusion-backend flashinfer-mxfp4-moe-precision
flexkv-config-file forward-pass-metrics-ipc-name forward-pass-metrics-worker-id fp4-gemm-backend
fp8-gemm-backend fuseep-mode grammar-backend hf-chat-template-name hicache-host-memory-mode
hicache-io-backend hicache-mem-layout hicache-storage-backend
hicache-storage-backend-extra-config hicache-storage-prefetch-policy hicache-write-policy
hierarchical-sparse-attention-extra-config hisparse-config host image-processor-backend
init-expert-location json-model-override-args kt-method kt-weight-path kv-cache-dtype kv-canary
kv-canary-real-data kv-events-config linear-attn-backend linear-attn-decode-backend
linear-attn-prefill-backend linear-attn-verify-backend lmcache-config-file load-balance-method
load-format load-publish-endpoint log-level log-level-http log-requests-format lora-backend
lora-eviction-policy mamba-backend mamba-radix-cache-strategy mamba-ssm-dtype
mm-attention-backend mm-feature-transport mm-global-cache-backend model model-config-parser
model-impl model-loader-extra-config model-path modelexpress-config
modelopt-checkpoint-restore-path modelopt-checkpoint-save-path modelopt-export-path
modelopt-quant moe-a2a-backend moe-runner-backend mooncake-ib-device msprobe-dump-config
nccl-init-addr offload-mode otlp-service-name otlp-traces-endpoint pdmux-config-path
ple-offload-backend ple-offload-dir prefill-attention-backend prefill-kv-cache-dequant-dtype
qsa-indexer-dtype quantization quantization-param-path radix-cache-backend radix-eviction-policy
reasoning-parser remote-instance-weight-loader-backend
remote-instance-weight-loader-seed-instance-ip retraction-policy return-hidden-states-mode
revision rl-on-policy-target rl-quant-profile sampling-backend sampling-defaults schedule-policy
served-model-name sidecar spec-trace-dir speculative-adaptive-config speculative-algorithm
speculative-attention-mode speculative-draft-attention-backend speculative-draft-kv-cache-dtype
speculative-draft-load-format speculative-draft-model speculative-draft-model-path
speculative-draft-model-quantization speculative-draft-model-revision
speculative-dsa-topk-backend speculative-dspark-confidence-sts-path
speculative-dspark-sps-table-path speculative-moe-a2a-backend speculative-moe-runner-backend
speculative-ngram-external-corpus-path speculative-ngram-match-type speculative-token-map
ssl-ca-certs ssl-certfile ssl-keyfile ssl-keyfile-password startup-weight-load-mode
tokenizer-backend tokenizer-metrics-custom-labels-header tokenizer-mode tokenizer-path
tool-call-parser tool-server trace-modules unified-cache-external-linker-backend uno-lora-path
warmups watermark-config weight-cache-mode weight-cache-socket weight-version
""")
"""One value."""

GONE = names("""
collect-tokens-histogram cuda-graph-bs cuda-graph-max-bs cuda-graph-tc-compiler
disable-piecewise-cuda-graph dsa-prefill-cp-mode elastic-ep-rejoin enable-breakable-cuda-graph
enable-dsa-prefill-context-parallel enable-expert-distribution-metrics enable-gdn-replayssm-spec
enable-nsa-prefill-context-parallel enable-prefill-context-parallel enforce-piecewise-cuda-graph
keep-mm-feature-on-device mamba-scheduler-strategy nsa-decode-backend nsa-prefill-backend
nsa-prefill-cp-mode piecewise-cuda-graph-compiler piecewise-cuda-graph-max-tokens
piecewise-cuda-graph-tokens prefill-cp-mode prefill-round-robin-balance
speculative-dflash-draft-window-size speculative-skip-dp-mlp-sync stream-output torchao-config
""")
"""Flags of older releases that VERSION no longer has."""

_CHOICES = """
attention-backend: triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4
  flashinfer llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha
  hpc_ops minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
bf16-gemm-backend: auto cutedsl gemv torch
boundary-reduction: auto ar rs rsv rs+rsv
cp-strategy: zigzag interleave
dcp-comm-backend: ag_rs a2a fi_a2a
decode-attention-backend: triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4
  flashinfer llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha
  hpc_ops minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
decoupled-spec-role: null verifier drafter
deepep-dispatcher-output-dtype: auto bf16 fp8 int8 nvfp4
deepep-mode: auto normal low_latency
deepep-v2-mode: direct hybrid
disaggregation-decode-allocation-policy: early prefill_complete
disaggregation-decode-retraction-backup: cpu_tensor host_pool none
disaggregation-mode: null prefill decode
disaggregation-transfer-backend: mooncake nixl ascend fake mori mooncake_tcp
dsa-decode-backend: flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto
  flashinfer_sparse_mla fa3 tilelang triton aiter trtllm intel_xpu
dsa-paged-mqa-logits-backend: auto deepgemm cutedsl aiter
dsa-prefill-backend: flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto
  flashinfer_sparse_mla triton_sparse_mla fa3 tilelang triton aiter trtllm intel_xpu
dsa-topk-backend: sgl-kernel torch flashinfer
dsa-triton-union: 0 2 4
dsv4-attn-backend: auto flashmla flashmla_mega trtllm
dsv4-prefill-backend: auto flashmla_sparse flashmla_sparse_q8
dtype: auto half float16 bfloat16 float float32
elastic-ep-backend: none mooncake nixl
elastic-ep-join-mode: scale recover
encoder-transfer-backend: auto zmq_to_scheduler zmq_to_tokenizer mooncake
ep-dispatch-algorithm: static dynamic fake lp
expert-balancedness-report-mode: off server_log prometheus both
expert-distribution-recorder-mode: stat stat_approx per_pass per_token
flashinfer-a2a-dispatch-type: auto bf16 nvfp4 mxfp8
flashinfer-allreduce-fusion-backend: auto trtllm mnnvl cutedsl
flashinfer-mxfp4-moe-precision: default bf16 fp8
fp4-gemm-backend: auto flashinfer_cudnn flashinfer_cutedsl flashinfer_cutlass flashinfer_trtllm
  marlin
fp8-gemm-backend: auto deep_gemm flashinfer_trtllm flashinfer_cutlass flashinfer_deepgemm
  flashinfer_cutedsl cutlass triton aiter
fuseep-mode: 1 2
grammar-backend: xgrammar outlines llguidance none
hicache-host-memory-mode: cache buffer_only
hicache-io-backend: direct kernel kernel_ascend
hicache-mem-layout: layer_first page_first page_first_direct page_first_kv_split page_head
hicache-storage-backend: file sim mooncake npu_memcache hf3fs nixl aibrix dynamic eic simm mori
  shm tensorcast seaweedfs
hicache-storage-prefetch-policy: best_effort wait_complete timeout
hicache-write-policy: write_back write_through write_through_selective
image-processor-backend: auto torchvision pil
kv-cache-dtype: auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16
kv-canary: none log raise
linear-attn-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu
linear-attn-decode-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion
  intel_xpu
linear-attn-prefill-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion
  intel_xpu
load-balance-method: auto round_robin follow_bootstrap_room total_requests total_tokens
load-format: auto pt safetensors instanttensor npcache dummy sharded_state presharded gguf
  expert_pack bitsandbytes mistral layered flash_rl remote remote_instance fastsafetensors
  private runai_streamer
log-requests-format: text json
log-requests-level: 0 1 2 3
lora-backend: triton csgmv ascend torch_native triton_v2
lora-eviction-policy: lru fifo
mamba-backend: triton flashinfer
mamba-radix-cache-strategy: auto no_buffer extra_buffer extra_buffer_lazy
mamba-ssm-dtype: float32 bfloat16 float16
max-lora-chunk-size: 16 32 64 128
mm-attention-backend: sdpa fa3 fa4 triton_attn ascend_attn aiter_attn flashinfer_cudnn amx_attn
  xpu_attn
mm-feature-transport: cpu cuda_ipc cuda_vmm
mm-global-cache-backend: mooncake
moe-a2a-backend: none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx
  ascend_tp flashinfer_megamoe
moe-runner-backend: auto deep_gemm triton triton_kernel flashinfer_trtllm
  experimental_sgl_trtllm flashinfer_trtllm_routed flashinfer_cutlass flashinfer_mxfp4
  flashinfer_cutedsl flashinfer_megamoe cutlass aiter marlin humming experimental_sgl_marlin
  lora_cutedsl lora_triton lora_marlin hpc_ops megamoe intel_xpu
ple-offload-backend: pinned file
prefill-attention-backend: triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3
  fa4 flashinfer llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha
  hpc_ops minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
prefill-kv-cache-dequant-dtype: auto nvfp4 fp8_e4m3
qsa-indexer-dtype: auto bfloat16 fp8_e4m3
quantization: awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt modelopt_fp8
  modelopt_fp4 nvfp4_online modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8 mxfp4
  auto-round auto-round-int8 compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe
  quark_mxfp4 mlx_q4 mlx_q8 unquant humming
radix-eviction-policy: lru lfu slru priority tlru
remote-instance-weight-loader-backend: transfer_engine nccl modelexpress
retraction-policy: length priority
return-hidden-states-mode: last full
rl-on-policy-target: fsdp
sampling-defaults: openai model
schedule-policy: lpm random fcfs dfs-weight lof priority routing-key hrrn shortest-prefill-first
speculative-attention-mode: prefill decode
speculative-draft-kv-cache-dtype: auto fp8_e5m2 fp8_e4m3 bf16 bfloat16
speculative-draft-load-format: auto pt safetensors instanttensor npcache dummy sharded_state
  presharded gguf expert_pack bitsandbytes mistral layered flash_rl remote remote_instance
  fastsafetensors private runai_streamer
speculative-draft-model-quantization: awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes
  gguf modelopt modelopt_fp8 modelopt_fp4 nvfp4_online modelopt_mixed petit_nvfp4 w8a8_int8
  w8a8_fp8 moe_wna16 w4afp8 mxfp4 auto-round auto-round-int8 compressed-tensors modelslim
  mxfp_w4a8 quark quark_int4fp8_moe quark_mxfp4 mlx_q4 mlx_q8 unquant humming
speculative-dsa-topk-backend: sgl-kernel torch flashinfer
speculative-moe-a2a-backend: none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe
  deepep_v2 pplx ascend_tp
speculative-moe-runner-backend: auto deep_gemm triton triton_kernel flashinfer_trtllm
  experimental_sgl_trtllm flashinfer_trtllm_routed flashinfer_cutlass flashinfer_mxfp4
  flashinfer_cutedsl flashinfer_megamoe cutlass aiter marlin humming experimental_sgl_marlin
  lora_cutedsl lora_triton lora_marlin hpc_ops megamoe intel_xpu
speculative-ngram-match-type: BFS PROB
startup-weight-load-mode: serial overlap
tokenizer-backend: huggingface fastokens
tokenizer-mode: auto slow
unified-cache-external-linker-backend: mooncake mori dynamic
weight-cache-mode: off daemon client
"""

CHOICES = {
    name: tuple(values.split())
    for name, _, values in (
        line.partition(":") for line in _CHOICES.replace("\n  ", " ").strip().split("\n")
    )
}
"""Flag -> the only values that it takes."""

FLAGS = (
    SWITCHES
    | OFF_FORMS
    | WHOLE
    | SIZES
    | NUMBERS
    | LISTS
    | JSON
    | TEXTS
    | {f"no-{name}" for name in OFF_FORMS}
)
"""All of them, --no- forms included."""
