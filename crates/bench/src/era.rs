//! The two eras of MCP as far as a load generator and a fake server need them.

use clap::ValueEnum;
use serde::Serialize;

/// Which way of speaking MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    /// 2026-07-28: each request stands alone.
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

    /// The revision that is spoken.
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }
}
