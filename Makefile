.PHONY: run test check e2e sim policy soak

run:   ; @scripts/prepare run && scripts/run
test:  ; @scripts/prepare test && scripts/ui test test:browser && scripts/test && scripts/e2e && scripts/check
check: ; @scripts/prepare check && scripts/check
e2e:   ; @scripts/prepare test && scripts/e2e
sim:   ; @scripts/prepare run && SEEDS=$${SEEDS:-10000} scripts/cargo test --release --locked -p gateway --test sim -- --nocapture
policy: ; @scripts/prepare run && scripts/cargo run --release --locked -p pool --example policy -- $${SEEDS:-20}
soak:  ; @scripts/prepare test && ROUNDS=$${ROUNDS:-50} scripts/test -p claude-proxy-router --test shared_login -- --nocapture
