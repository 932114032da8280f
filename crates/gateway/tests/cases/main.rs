//! The real-world cases, one test each, named by id (docs/cases.md).

#[path = "../support/mod.rs"]
mod support;

mod exhausted;
mod limits;
