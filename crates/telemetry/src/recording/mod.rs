//! Recordings: the messages that crossed the gateway's edges, as lines of JSON (docs/recordings.md).
//!
//! Both edges give messages to the [`Tap`]. A [`Scribe`] takes them from its queue, masks secrets and
//! writes lines, off the way of calls.

mod format;
mod mask;
mod scribe;
mod tap;
mod values;

pub use format::{
    Definitions, End, Ending, Framing, Head, Line, Loss, Lost, Message, RecordedServer, Side, Text,
    To, VERSION, line,
};
pub use scribe::{Full, Scribe};
pub(crate) use tap::Item;
pub use tap::{Batch, Captured, Captures, Party, Selection, Tap, fresh_number};
