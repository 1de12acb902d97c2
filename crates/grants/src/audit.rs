//! What becomes of what users grant, for whoever keeps a record of that, which this crate does not reach.

use std::borrow::Cow;
use std::fmt;

use futures_util::future::BoxFuture;

use crate::error::SignInError;
use crate::store::Owner;

/// Puts on record what becomes of what users grant. Must not block.
pub trait GrantRecord: fmt::Debug + Send + Sync {
    /// Puts on record that something is going to be done, if that has to be there before. It is done once this has resolved,
    /// and not at all if it cannot be put on record.
    fn begins(&self, change: GrantChange<'_>) -> BoxFuture<'static, Result<(), NotOnRecord>>;

    /// Puts on record what has come of it.
    fn ended(&self, change: GrantChange<'_>, end: &GrantChangeEnd<'_>);
}

/// A change could not be put on record.
#[derive(Clone, Copy, Debug)]
pub struct NotOnRecord;

/// A change of what a user has granted at a server.
#[derive(Clone, Copy, Debug)]
pub struct GrantChange<'a> {
    /// What is done.
    pub kind: GrantChangeKind,
    /// Who the user is, and which server it is about.
    pub owner: &'a Owner,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChangeKind {
    /// The user signs in.
    SignIn,
    /// The user deposits a key.
    KeyDeposit,
    /// What was granted, or deposited, is forgotten, since the user or an operator wants that.
    SignOut,
    /// What was granted is forgotten, since its authorization server does not renew it any more.
    End,
}

/// What has come of a change.
#[derive(Clone, Debug)]
pub struct GrantChangeEnd<'a> {
    /// `ok`, `refused` or `error`.
    pub outcome: &'static str,
    /// Why.
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> GrantChangeEnd<'a> {
    /// It was done.
    pub(crate) const DONE: Self = Self {
        outcome: "ok",
        reason: None,
    };

    /// It was done, for a reason.
    pub(crate) fn because(reason: &'a str) -> Self {
        Self {
            reason: Some(reason.into()),
            ..Self::DONE
        }
    }

    /// It has failed.
    pub(crate) fn failed(error: &'a SignInError) -> Self {
        let (outcome, reason) = match error {
            SignInError::Failed { reason } => ("error", Cow::Borrowed(reason.as_str())),
            SignInError::NoServer | SignInError::NoClient { .. } | SignInError::NotRecorded => {
                ("error", error.to_string().into())
            }
            SignInError::NotUsed(_)
            | SignInError::Refused(_)
            | SignInError::NotIdentified(_)
            | SignInError::NotPermitted => ("refused", error.to_string().into()),
        };
        Self {
            outcome,
            reason: Some(reason),
        }
    }
}
