//! The description of the API for programs (OpenAPI 3.1), `docs/openapi.json`.
//!
//! Answers are texts that are put together, with bytes of clients and servers unchanged in them; no structure is written as JSON.
//! The structures here are therefore for the description alone, and belong to the tests, which write the file
//! (`UPDATE_GENERATED=1 cargo test -p fanlight-admin openapi`). `tests/docs/api.rs` compares it with what the program answers.

mod document;
mod operations;
mod schemas;
