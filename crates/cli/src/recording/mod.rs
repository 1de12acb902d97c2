//! Recordings (docs/recordings.md).

mod command;
mod reader;
pub(crate) mod script;

pub use command::record;
pub use reader::Recording;
