//! The two eras of MCP.

use clap::ValueEnum;
use serde::Serialize;

/// An era of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    /// 2026-07-28: stateless.
    Modern,
    /// 2025-11-25: `initialize` opens a session.
    Legacy,
}

impl Era {
    pub(crate) const ALL: [Self; 2] = [Self::Modern, Self::Legacy];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }

    /// The newest revision of the era.
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }
}
