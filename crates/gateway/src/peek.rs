//! What a request is about, found by looking at its body as it passes: the model, whose conversation, which ids.
//!
//! The body is never parsed into a tree and never rewritten. A scanner walks over the bytes, keeps its place in the
//! nesting, skips long strings at the speed of `memchr`, and notes a handful of values. Where a key stands twice the
//! last one counts, as it does for the server; a key written with escapes is the same key.

use xxhash_rust::xxh3::Xxh3;

/// The longest key or value that is kept; longer ones cannot be what we look for.
const LONGEST: usize = 2_048;
/// How many ids are kept.
const MOST_IDS: usize = 64;
/// How much of the first turn's text tells conversations apart. It is known as soon as so much has come, so that a
/// long turn does not keep its request waiting.
const TURN_LIMIT: usize = 64 << 10;

/// What was found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// `model` at the top level.
    pub model: Option<String>,
    /// `metadata.user_id`.
    pub user_id: Option<String>,
    /// A hash of the text of the first message, as far as it is looked at.
    pub first_turn: Option<u64>,
    /// Ids of files and containers, wherever they stand.
    pub ids: Vec<String>,
}

/// Where the scanner is: what each open bracket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Top,
    Metadata,
    Messages,
    FirstMessage,
    FirstMessageList,
    Container,
    Object,
    List,
}

impl Level {
    const fn is_object(self) -> bool {
        !matches!(self, Self::Messages | Self::FirstMessageList | Self::List)
    }
}

/// What is done with the string at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Skip,
    Key,
    Model,
    UserId,
    Id,
    FirstTurn,
}

/// The scanner.
pub struct Peek {
    levels: Vec<Level>,
    /// The key that the next value belongs to, unescaped.
    key: Vec<u8>,
    /// Whether the next string of the open object is a key.
    key_next: bool,
    /// The string at hand, if inside one, and whether its last byte begins an escape.
    string: Option<(Purpose, bool)>,
    kept: Vec<u8>,
    overflow: bool,
    /// Elements of `messages` begun so far.
    messages: usize,
    turn: Xxh3,
    turn_length: usize,
    found: Found,
}

impl Default for Peek {
    fn default() -> Self {
        Self {
            levels: Vec::new(),
            key: Vec::new(),
            key_next: false,
            string: None,
            kept: Vec::new(),
            overflow: false,
            messages: 0,
            turn: Xxh3::new(),
            turn_length: 0,
            found: Found::default(),
        }
    }
}

impl Peek {
    /// What was found so far.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Looks at the next bytes.
    pub fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.string {
                Some((purpose, escaped)) => self.in_string(bytes, purpose, escaped),
                None => self.between_strings(bytes),
            };
        }
    }

    /// Consumes up to the next quotation mark or bracket.
    fn between_strings<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.string = Some((self.purpose(), false));
                    self.kept.clear();
                    self.overflow = false;
                    return &bytes[index + 1..];
                }
                b'{' | b'[' => self.open(*byte == b'{'),
                b'}' | b']' => self.close(),
                b',' => self.key_next = self.levels.last().is_some_and(|level| level.is_object()),
                b':' => self.key_next = false,
                _ => {}
            }
        }
        &[]
    }

    /// Consumes up to the string's end.
    fn in_string<'a>(&mut self, bytes: &'a [u8], purpose: Purpose, escaped: bool) -> &'a [u8] {
        // A quotation mark ends the string unless an odd number of backslashes stands before it. Looking for marks
        // alone makes fewer stops than looking for backslashes too: text is full of line ends, written `\n`.
        let begin = usize::from(escaped);
        let mut from = begin;
        while let Some(index) = memchr::memchr(b'"', &bytes[from.min(bytes.len())..]).map(|at| from + at) {
            if backslashes(&bytes[begin..index]).is_multiple_of(2) {
                self.keep(purpose, &bytes[..index]);
                self.string = None;
                self.end_string(purpose);
                return &bytes[index + 1..];
            }
            from = index + 1;
        }
        self.keep(purpose, bytes);
        let open = bytes.len() > begin && !backslashes(&bytes[begin..]).is_multiple_of(2);
        self.string = Some((purpose, open));
        &[]
    }

    fn keep(&mut self, purpose: Purpose, bytes: &[u8]) {
        match purpose {
            Purpose::Skip => {}
            Purpose::FirstTurn => self.hear(bytes),
            Purpose::Key | Purpose::Model | Purpose::UserId | Purpose::Id => {
                let room = LONGEST - self.kept.len();
                self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
                self.overflow |= bytes.len() > room;
            }
        }
    }

    /// Takes in more of the first turn's text.
    fn hear(&mut self, text: &[u8]) {
        if self.turn_length == TURN_LIMIT {
            return;
        }
        let text = &text[..text.len().min(TURN_LIMIT - self.turn_length)];
        self.turn.update(text);
        self.turn_length += text.len();
        if self.turn_length == TURN_LIMIT {
            self.found.first_turn = Some(self.turn.digest());
        }
    }

    /// What the string that begins here is for.
    fn purpose(&self) -> Purpose {
        let Some(&level) = self.levels.last() else {
            return Purpose::Skip;
        };
        if self.key_next && level.is_object() {
            return Purpose::Key;
        }
        match (level, self.key.as_slice()) {
            (level, b"file_id") if level.is_object() => Purpose::Id,
            (Level::Top, b"model") => Purpose::Model,
            (Level::Top, b"container") | (Level::Container, b"id") => Purpose::Id,
            (Level::Metadata, b"user_id") => Purpose::UserId,
            // What moves between turns (cache marks) or is no text stays out of the hash.
            (Level::FirstMessage, b"text" | b"content") => Purpose::FirstTurn,
            _ => Purpose::Skip,
        }
    }

    fn end_string(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Skip => {}
            // A separator, so that two texts and one long text differ.
            Purpose::FirstTurn => self.hear(&[0xff]),
            Purpose::Key => {
                self.key.clear();
                if !self.overflow {
                    match self.kept.contains(&b'\\') {
                        false => self.key.extend_from_slice(&self.kept),
                        true => self.key.extend(unescaped(&self.kept).unwrap_or_default().into_bytes()),
                    }
                }
            }
            Purpose::Model => self.found.model = self.value(),
            Purpose::UserId => self.found.user_id = self.value(),
            Purpose::Id => {
                if let Some(id) = self.value()
                    && self.found.ids.len() < MOST_IDS
                    && !self.found.ids.contains(&id)
                {
                    self.found.ids.push(id);
                }
            }
        }
    }

    fn value(&self) -> Option<String> {
        match self.overflow {
            true => None,
            false => unescaped(&self.kept),
        }
    }

    fn open(&mut self, object: bool) {
        let level = match (self.levels.last(), self.key.as_slice(), object) {
            (None, _, true) => Level::Top,
            (Some(Level::Top), b"metadata", true) => {
                self.found.user_id = None;
                Level::Metadata
            }
            (Some(Level::Top), b"messages", false) => {
                self.messages = 0;
                self.turn = Xxh3::new();
                self.turn_length = 0;
                self.found.first_turn = None;
                Level::Messages
            }
            (Some(Level::Top), b"container", true) => Level::Container,
            (Some(Level::Messages), _, true) => {
                self.messages += 1;
                match self.messages {
                    1 => Level::FirstMessage,
                    _ => Level::Object,
                }
            }
            // The text of a content block counts, and nothing deeper.
            (Some(Level::FirstMessage), b"content", false) => Level::FirstMessageList,
            (Some(Level::FirstMessageList), _, true) => Level::FirstMessage,
            (_, _, true) => Level::Object,
            (_, _, false) => Level::List,
        };
        self.levels.push(level);
        self.key_next = object;
        self.key.clear();
    }

    fn close(&mut self) {
        let closed = self.levels.pop();
        if closed == Some(Level::FirstMessage) && self.levels.last() == Some(&Level::Messages) {
            self.found.first_turn = Some(self.turn.digest());
        }
        self.key_next = false;
        self.key.clear();
    }
}

/// How many backslashes `bytes` ends with.
fn backslashes(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// The text of a JSON string's inside; `None` if it is not valid.
fn unescaped(inside: &[u8]) -> Option<String> {
    if !inside.contains(&b'\\') {
        return String::from_utf8(inside.to_vec()).ok();
    }
    let quoted = [b"\"", inside, b"\""].concat();
    serde_json::from_slice(&quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(body: &str) -> Found {
        let mut peek = Peek::default();
        peek.look(body.as_bytes());
        peek.found().clone()
    }

    #[test]
    fn the_model_is_the_one_at_the_top_level_and_the_last_of_its_name() {
        for (body, want) in [
            (r#"{"model":"claude-opus-5","messages":[]}"#, Some("claude-opus-5")),
            (
                r#"{"messages":[{"role":"user","content":"\"model\":\"no\""}],"model":"m"}"#,
                Some("m"),
            ),
            (
                r#"{"metadata":{"model":"no"},"tools":[{"model":"no"}],"model" : "m"}"#,
                Some("m"),
            ),
            (r#"{"model":"first","model":"last"}"#, Some("last")),
            (r#"{"mo\u0064el":"m"}"#, Some("m")),
            (r#"{"model":"a\u002db\/c"}"#, Some("a-b/c")),
            (r#"{"Model":"no","x":"model"}"#, None),
            (r#"["model","no"]"#, None),
            (r#"{"a":[{"b":"\\"}],"model":"m"}"#, Some("m")),
            ("", None),
        ] {
            assert_eq!(found(body).model.as_deref(), want, "{body}");
        }
    }

    #[test]
    fn rt_11_the_model_is_found_behind_a_long_body_in_whatever_pieces_it_comes() {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"{}"}}],"model":"claude-fable-5"}}"#,
            "x\\n\\\"".repeat(300_000)
        );
        for size in [1, 3, 65_536, body.len()] {
            let mut peek = Peek::default();
            for piece in body.as_bytes().chunks(size) {
                peek.look(piece);
            }
            assert_eq!(
                peek.found().model.as_deref(),
                Some("claude-fable-5"),
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn rt_12_ids_are_found_wherever_they_stand() {
        let body = r#"{"container":"container_1","messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"file_t1"}},
            {"type":"image","source":{"file_\u0069d":"file_t2"}}]}],"x":{"file_id":"file_t1"}}"#;
        assert_eq!(found(body).ids, ["container_1", "file_t1", "file_t2"]);
        assert_eq!(
            found(r#"{"container":{"id":"container_2","skills":[{"id":"no"}]}}"#).ids,
            ["container_2"]
        );
    }

    #[test]
    fn the_users_id_is_found_in_the_metadata_alone() {
        let body = r#"{"metadata":{"user_id":"{\"session_id\":\"s\"}"},"user_id":"no"}"#;
        assert_eq!(found(body).user_id.as_deref(), Some(r#"{"session_id":"s"}"#));
    }

    #[test]
    fn the_first_turn_is_its_text_and_cache_marks_do_not_change_it() {
        let turn = |body: &str| found(body).first_turn;
        let first = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}]}"#;
        let later = r#"{"messages":[{"content":[{"type":"text","text":"hello"}],"role":"user"},{"role":"assistant","content":"x"}]}"#;
        let other = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hallo"}]}]}"#;
        assert!(turn(first).is_some());
        assert_eq!(turn(first), turn(later));
        assert_ne!(turn(first), turn(other));
        assert_eq!(
            turn(r#"{"messages":[{"role":"user","content":"not yet"#),
            None,
            "known only when it is whole"
        );
    }

    #[test]
    fn a_long_first_turn_is_known_before_its_end_and_the_same_in_whatever_pieces_it_comes() {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"{}"#,
            "long\\n".repeat(20_000)
        );
        let turn = |size: usize| {
            let mut peek = Peek::default();
            body.as_bytes().chunks(size).for_each(|piece| peek.look(piece));
            peek.found().first_turn
        };
        assert!(turn(body.len()).is_some());
        for size in [1, 7, 4_096] {
            assert_eq!(turn(size), turn(body.len()), "pieces of {size}");
        }
    }

    #[test]
    fn what_is_too_long_to_be_a_models_name_is_left_out() {
        let body = format!(r#"{{"model":"{}"}}"#, "m".repeat(LONGEST + 1));
        assert_eq!(found(&body).model, None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_stumble_and_pieces_do_not_matter(body in "[\\[\\]{}\",:\\\\a-c\\n]{0,200}", cut in 0usize..200) {
            let mut whole = Peek::default();
            whole.look(body.as_bytes());
            let (head, tail) = body.as_bytes().split_at(cut.min(body.len()));
            let mut pieces = Peek::default();
            pieces.look(head);
            pieces.look(tail);
            prop_assert_eq!(whole.found(), pieces.found());
        }

        #[test]
        fn it_finds_what_a_parser_finds(model in "\\PC{0,20}", user in "\\PC{0,20}", text in "\\PC{0,40}") {
            let body = serde_json::json!({"messages": [{"role": "user", "content": text}], "metadata": {"user_id": user}, "model": model});
            let found = found(&body.to_string());
            prop_assert_eq!(found.model, Some(model));
            prop_assert_eq!(found.user_id, Some(user));
        }
    }
}
