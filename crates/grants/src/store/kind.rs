//! The kinds of entries.

use redb::TableDefinition;

fanlight_protocol::named! {
    /// The kind of an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// A user's grant at a server.
        Grant = "grant",
        /// A key that a user has deposited for a server.
        UserKey = "user key",
        /// A registration at an authorization server.
        Client = "client",
        /// A sign-in that a user has agreed to and not finished yet.
        SignIn = "sign-in",
        /// The user of a browser, identified a moment ago.
        Browser = "browser",
        /// A server's lists and description.
        Lists = "lists",
        /// The rules for naming servers' tools and prompts.
        Names = "names",
        /// The server of a client's task.
        Task = "task",
        /// The epoch of an owner's record, in a common store.
        Epoch = "epoch",
    }
}

impl Kind {
    /// All kinds of records.
    pub const RECORDS: [Self; 8] = [
        Self::Grant,
        Self::UserKey,
        Self::Client,
        Self::SignIn,
        Self::Browser,
        Self::Lists,
        Self::Names,
        Self::Task,
    ];

    /// Whether the data is about users, or about authorization servers for users. Without users,
    /// such data cannot be recreated.
    pub fn is_of_users(self) -> bool {
        match self {
            Self::Grant
            | Self::UserKey
            | Self::Client
            | Self::SignIn
            | Self::Browser
            | Self::Epoch => true,
            Self::Lists | Self::Names | Self::Task => false,
        }
    }

    pub(super) fn table(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
        TableDefinition::new(self.as_str())
    }

    /// The limit of entries of the kind.
    pub fn most(self) -> u64 {
        match self {
            Self::Grant | Self::UserKey | Self::Epoch => 100_000,
            Self::Browser | Self::Task => 10_000,
            Self::Client | Self::SignIn | Self::Lists | Self::Names => 1000,
        }
    }

    /// The limit of entries of the kind per principal. Entries without a principal have no further
    /// limit.
    pub fn most_of_one(self) -> u64 {
        match self {
            Self::Grant | Self::UserKey | Self::Epoch => 256,
            // More than a user continues at a time: earlier ones have been abandoned.
            Self::SignIn | Self::Browser => 16,
            Self::Client | Self::Lists | Self::Names | Self::Task => self.most(),
        }
    }

    /// Whether the oldest entry is removed when there are too many. A user can begin a sign-in
    /// again, or identify themselves again, and a client can be registered again.
    pub fn gives_way(self) -> bool {
        matches!(
            self,
            Self::Client | Self::SignIn | Self::Browser | Self::Task | Self::Epoch
        )
    }

    /// Whether records of the kind are sealed for an epoch, which ends when one is removed.
    pub(super) fn has_epochs(self) -> bool {
        matches!(self, Self::Grant | Self::UserKey)
    }
}
