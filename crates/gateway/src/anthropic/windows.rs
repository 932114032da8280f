//! Anthropic's names for the windows of a seat: in a header, in a claim, and in what people read.

use pool::{Family, WindowKind};

/// How headers and claims name the weekly window of the very model that was asked for, whichever it is.
const OF_THE_MODEL: (&str, &str) = ("7d_oi", "seven_day_overage_included");
/// The families whose claims Claude Code knows by name.
const CLAIMED_BY_NAME: [&str; 2] = ["opus", "sonnet"];

/// The window that a header's middle part names: `5h`, `7d`, `7d_oi`.
pub(super) fn labelled(label: &str, model: Option<&str>) -> Option<WindowKind> {
    match label {
        "5h" => Some(WindowKind::FiveHour),
        "7d" => Some(WindowKind::Weekly),
        _ if label == OF_THE_MODEL.0 => family_of(model?),
        _ => family_of(label.strip_prefix("7d_")?),
    }
}

/// The window that a claim names: `five_hour`, `seven_day`, `seven_day_opus`.
pub(super) fn claimed(claim: &str, model: Option<&str>) -> Option<WindowKind> {
    match claim {
        "five_hour" => Some(WindowKind::FiveHour),
        "seven_day" => Some(WindowKind::Weekly),
        _ if claim == OF_THE_MODEL.1 => family_of(model?),
        _ => family_of(claim.strip_prefix("seven_day_")?),
    }
}

/// The window of the family that `name` belongs to, be it a model's id or what people read: `claude-fable-5` and
/// `Fable` are one. The family is the first word that is neither the maker's nor a number.
pub(super) fn family_of(name: &str) -> Option<WindowKind> {
    let words = name.split(|letter: char| !letter.is_alphanumeric());
    let mut families = words.filter(|word| {
        !word.is_empty()
            && !word.eq_ignore_ascii_case("claude")
            && !word.starts_with(|letter: char| letter.is_numeric())
    });
    families.next().map(|word| WindowKind::Model(Family::new(word)))
}

/// The claim that names the window, as Claude Code knows it.
pub(super) fn claim(kind: &WindowKind) -> String {
    match kind {
        WindowKind::FiveHour => "five_hour".into(),
        WindowKind::Weekly => "seven_day".into(),
        WindowKind::Model(family) if CLAIMED_BY_NAME.contains(&family.name()) => format!("seven_day_{}", family.name()),
        WindowKind::Model(_) => OF_THE_MODEL.1.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_has_the_claim_that_claude_code_knows() {
        for (kind, want) in [
            (WindowKind::FiveHour, "five_hour"),
            (WindowKind::Weekly, "seven_day"),
            (WindowKind::Model(Family::new("Fable")), "seven_day_overage_included"),
            (WindowKind::Model(Family::new("Opus")), "seven_day_opus"),
        ] {
            assert_eq!(claim(&kind), want);
            assert_eq!(claimed(want, Some("claude-fable-5")), Some(kind));
        }
    }

    #[test]
    fn lm_09_a_familys_name_is_learnt_from_what_anthropic_says() {
        for (name, want) in [
            ("claude-fable-5", Some("fable")),
            ("claude-3-5-sonnet-20241022", Some("sonnet")),
            ("claude-opus-5-5[1m]", Some("opus")),
            ("Fable", Some("fable")),
            ("Claude Saga 6", Some("saga")),
            ("opus", Some("opus")),
            ("claude", None),
            ("", None),
        ] {
            let want = want.map(|name| WindowKind::Model(Family::new(name)));
            assert_eq!(family_of(name), want, "{name}");
        }
    }
}
