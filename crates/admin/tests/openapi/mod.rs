//! The OpenAPI 3.1 description of the API, `docs/openapi.json`.
//!
//! It is generated from the types of answers. It belongs to the tests, which write the file
//! (`UPDATE_GENERATED=1 cargo test -p fanlight-admin openapi`). `tests/docs/api.rs` compares it
//! with the program's answers.

mod document;
mod operations;
mod requests;
mod texts;
