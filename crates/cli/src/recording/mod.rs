//! Recordings (docs/recordings.md).

mod reader;

pub use reader::Recording;
