.PHONY: run test check sim

run:   ; @scripts/prepare run && scripts/run
test:  ; @scripts/prepare test && scripts/test && scripts/check
check: ; @scripts/prepare check && scripts/check
sim:   ; @scripts/prepare run && SEEDS=$${SEEDS:-10000} scripts/cargo test --release --locked -p gateway --test sim -- --nocapture
