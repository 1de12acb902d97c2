//! Audit events for grants. The caller supplies the audit log.

use std::borrow::Cow;
use std::fmt;

use futures_util::future::BoxFuture;

use crate::{Owner, SignInError};

/// Writes changes of users' grants to the audit log. Must not block.
///
/// A trait because its implementation depends on this crate.
pub trait GrantRecord: fmt::Debug + Send + Sync {
    /// Announces a change, if the audit log requires that. The change is made once this has
    /// resolved, and not at all if it fails.
    fn begins(&self, change: GrantChange<'_>) -> BoxFuture<'static, Result<(), NotOnRecord>>;

    /// Reports the outcome of a change.
    fn record_end(&self, change: GrantChange<'_>, end: &GrantChangeEnd<'_>);
}

/// A change could not be written to the audit log.
#[derive(Clone, Copy, Debug)]
pub struct NotOnRecord;

/// A change of a user's grant at a server.
#[derive(Clone, Copy, Debug)]
pub struct GrantChange<'a> {
    /// The kind of change.
    pub kind: GrantChangeKind,
    /// The user and the server.
    pub owner: &'a Owner,
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChangeKind {
    /// The user signs in.
    SignIn,
    /// The user deposits a key.
    KeyDeposit,
    /// The grant or key is removed because the user or an operator wants that.
    SignOut,
    /// The grant is removed because its authorization server no longer renews it.
    End,
}

/// The outcome of a change.
#[derive(Clone, Debug)]
pub struct GrantChangeEnd<'a> {
    /// `ok`, `refused` or `error`.
    pub outcome: &'static str,
    /// The reason.
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> GrantChangeEnd<'a> {
    /// The change was made.
    pub(crate) const DONE: Self = Self {
        outcome: "ok",
        reason: None,
    };

    /// The change was made, for this reason.
    pub(crate) fn new(reason: &'a str) -> Self {
        Self {
            reason: Some(reason.into()),
            ..Self::DONE
        }
    }

    /// The change failed.
    pub(crate) fn failed(error: &'a SignInError) -> Self {
        let (outcome, reason) = match error {
            SignInError::Failed { reason } => ("error", Cow::Borrowed(reason.as_str())),
            SignInError::NoServer
            | SignInError::NoClient { .. }
            | SignInError::Impossible(_)
            | SignInError::NotRecorded => ("error", error.to_string().into()),
            SignInError::NotUsed(_)
            | SignInError::Refused(_)
            | SignInError::OfOtherServer { .. }
            | SignInError::NotIdentified(_)
            | SignInError::NotPermitted => ("refused", error.to_string().into()),
        };
        Self {
            outcome,
            reason: Some(reason),
        }
    }
}
