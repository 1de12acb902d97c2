//! The description of the API for programs (OpenAPI 3.1), `docs/openapi.json`.
//!
//! It is made of the types that are answered, and belongs to the tests, which write the file
//! (`UPDATE_GENERATED=1 cargo test -p fanlight-admin openapi`). `tests/docs/api.rs` compares it with what the program answers.

mod document;
mod operations;
mod requests;
mod texts;
