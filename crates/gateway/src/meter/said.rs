//! What the JSON of an answer, or of a stream's event, says of cost and container.

use serde::Deserialize;

use super::Metered;

/// The parts of an answer, or of an event, that tell it.
#[derive(Deserialize)]
struct Said {
    message: Option<Inner>,
    delta: Option<Inner>,
    usage: Option<Usage>,
    container: Option<Container>,
}

#[derive(Deserialize)]
struct Inner {
    usage: Option<Usage>,
    container: Option<Container>,
}

#[derive(Deserialize)]
struct Container {
    id: String,
}

#[derive(Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

/// Takes in what `json` says. Figures of a stream count from its beginning, so a later one replaces an earlier one.
pub(super) fn take_in(found: &mut Metered, json: &[u8]) {
    let Ok(said) = serde_json::from_slice::<Said>(json) else {
        return;
    };
    let own = Inner {
        usage: said.usage,
        container: said.container,
    };
    for inner in [said.message, said.delta, Some(own)].into_iter().flatten() {
        if let Some(usage) = inner.usage {
            let tokens = found.tokens.get_or_insert_default();
            let put = |place: &mut u64, figure: Option<u64>| *place = figure.unwrap_or(*place);
            put(&mut tokens.input, usage.input_tokens);
            put(&mut tokens.output, usage.output_tokens);
            put(&mut tokens.cache_read, usage.cache_read_input_tokens);
            put(&mut tokens.cache_write, usage.cache_creation_input_tokens);
        }
        if let Some(container) = inner.container {
            found.container = Some(container.id);
        }
    }
}
