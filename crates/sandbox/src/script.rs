//! Answers laid ready for requests to come.

use crate::answer::Answer;

const ANY: &str = "*";

struct Script {
    token: String,
    path: String,
    answer: Answer,
    stays: bool,
}

impl Script {
    fn fits(&self, token: Option<&str>, path: &str) -> bool {
        (self.token == ANY || Some(self.token.as_str()) == token) && (self.path == ANY || self.path == path)
    }
}

#[derive(Default)]
pub(crate) struct Scripts(Vec<Script>);

impl Scripts {
    pub(crate) fn once(&mut self, token: &str, path: &str, answer: Answer) {
        self.add(token, path, answer, false);
    }

    pub(crate) fn always(&mut self, token: &str, path: &str, answer: Answer) {
        self.add(token, path, answer, true);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The answer for this request; a queued one is used up.
    pub(crate) fn next(&mut self, token: Option<&str>, path: &str) -> Option<Answer> {
        let queued = self
            .0
            .iter()
            .position(|script| !script.stays && script.fits(token, path));
        if let Some(index) = queued {
            return Some(self.0.remove(index).answer);
        }
        self.0
            .iter()
            .rev()
            .find(|script| script.stays && script.fits(token, path))
            .map(|script| script.answer.clone())
    }

    fn add(&mut self, token: &str, path: &str, answer: Answer, stays: bool) {
        self.0.push(Script {
            token: token.to_owned(),
            path: path.to_owned(),
            answer,
            stays,
        });
    }
}
