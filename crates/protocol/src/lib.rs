//! The MCP wire format, without I/O: raw JSON text with slicing and splicing, JSON-RPC envelopes,
//! views of results, the framings of both transports, revisions, and header codecs.
//!
//! Nothing here decodes a message into a struct and encodes it again. A message is its text
//! (reference-counted bytes) with the offsets of the members that are read. Other members are not
//! touched, so a member that a later revision adds passes unchanged.
//!
//! This crate does no I/O and depends on no other crate of the workspace
//! (`tests/integration/layers.rs` checks that).

pub mod accept;
pub mod annotations;
pub mod capability;
pub mod digest;
pub mod epoch;
pub mod error;
#[cfg(test)]
mod error_reference;
pub mod header;
mod implementation;
pub mod input;
pub mod json;
pub mod line;
pub mod message;
pub mod meta;
pub mod method;
pub mod param_header;
pub mod partial;
pub mod result;
pub mod revision;
pub mod seal;
pub mod secret;
pub mod sse;
pub mod subscription;
pub mod task_support;
pub mod uri;
pub mod visible;

/// A word for [`Json::may_contain`], prepared once in the life of the program.
#[macro_export]
macro_rules! word {
    ($word:expr) => {{
        static WORD: $crate::json::Word<$crate::json::Finder<'static>> =
            $crate::json::Word::new(|| $crate::json::Finder::new($word));
        &WORD
    }};
}

/// Defines an enum whose variants have names: `ALL` has the variants in order, `as_str` returns the
/// name of one, and `parse` of a name finds its variant.
#[macro_export]
macro_rules! named {
    ($(#[$of:meta])* pub enum $name:ident {
        $($(#[$about:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$of])*
        pub enum $name { $($(#[$about])* $variant,)+ }

        impl $name {
            /// All variants, in order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The name of the variant.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = &'static str;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let mut all = Self::ALL.into_iter();
                all.find(|one| one.as_str() == name).ok_or("this name is unknown")
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub use capability::{
    ClientCapability, MissingCapability, can_be_asked, has_tasks_extension,
    missing_capability_error,
};
pub use digest::{Sha256, sha256, sha256_hex, sha256_of_parts, short_digest};
pub use error::{RpcError, code};
pub use implementation::{USER_AGENT, implementation};
pub use input::{INPUT_RESPONSES, InputRequired, MAX_INPUT_ROUNDS, REQUEST_STATE};
pub use json::{
    ArrayBuilder, Chunks, DEFAULT_NESTING, Edits, Json, MAX_NESTING, ObjectBuilder,
    estimated_tokens, member_name, rewrite_object,
};
pub use message::{
    Message, MessageError, Notification, Request, Response, notification_text, request_text,
};
pub use meta::LogLevel;
pub use method::Method;
pub use result::{ResultView, ServerDescription};
pub use revision::{Era, Questions, Revision, TaskDialect};
