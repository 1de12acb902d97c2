//! Entries in common with other processes, instead of a file. Whoever stores them cannot read them.

use std::fmt;

use async_trait::async_trait;

use super::StoreError;
use super::database::{Change, Entry, Stamp, decode, encode};
use super::kind::Kind;

/// How often to retry a change after other processes were faster.
const ATTEMPTS: usize = 8;

/// The reason why entries were not read or stored. The text is for operators.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CommonError(pub String);

/// The replacement of one entry by another.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The expected current value; `None` for no entry.
    pub old: Option<&'a [u8]>,
    /// The new value; `None` to remove the entry.
    pub new: Option<&'a [u8]>,
    /// When the entry becomes useless, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether only the entry's lease changes, which may be lost.
    pub is_of_lease: bool,
}

/// The result of an [`Exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// The entry was replaced.
    Done,
    /// The entry has another value by now.
    Changed,
    /// There are too many entries.
    Full,
}

/// Stores entries for several processes. Their names are `owner/name`: hexadecimal digits, then any
/// text.
///
/// A trait because its implementation depends on this crate.
#[async_trait]
pub trait CommonEntries: fmt::Debug + Send + Sync {
    /// The current time at the place of this entry, in seconds since 1970. All processes use this
    /// clock.
    async fn now(&self, kind: Kind, name: &str) -> Result<u64, CommonError>;

    /// The entry of this name.
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Vec<u8>>, CommonError>;

    /// The entries of an owner, or of all owners, at most `most`.
    async fn list(
        &self,
        kind: Kind,
        owner: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, CommonError>;

    /// Replaces one entry, if it still has the expected value. Afterwards it is stored as safely as
    /// possible, unless only its lease has changed.
    async fn exchange(
        &self,
        kind: Kind,
        name: &str,
        exchange: Exchange<'_>,
    ) -> Result<Exchanged, CommonError>;

    /// Removes the entries of an owner, or of all owners. Returns their number.
    async fn remove_all(&self, kind: Kind, owner: Option<&str>) -> Result<usize, CommonError>;

    /// A value that changes when another process may have changed an entry.
    fn stamp(&self) -> Stamp;

    /// Whether nothing can be read now; data read earlier stays in use.
    fn is_away(&self) -> bool;
}

impl From<CommonError> for StoreError {
    fn from(CommonError(reason): CommonError) -> Self {
        Self::Common(reason)
    }
}

pub(super) async fn get(
    common: &dyn CommonEntries,
    kind: Kind,
    name: &str,
) -> Result<Option<Entry>, StoreError> {
    common
        .get(kind, name)
        .await?
        .map(|bytes| decode(&bytes))
        .transpose()
}

/// The entries whose names begin with `prefix`: empty, or an owner with a slash.
pub(super) async fn list(
    common: &dyn CommonEntries,
    kind: Kind,
    prefix: &str,
    most: usize,
) -> Result<Vec<(String, Entry)>, StoreError> {
    let all = common.list(kind, prefix.strip_suffix('/'), most).await?;
    all.into_iter()
        .map(|(name, bytes)| Ok((name, decode(&bytes)?)))
        .collect()
}

pub(super) async fn remove_all(
    common: &dyn CommonEntries,
    kind: Kind,
    prefix: &str,
) -> Result<usize, StoreError> {
    Ok(common.remove_all(kind, prefix.strip_suffix('/')).await?)
}

/// Changes the entry of this name with `decide`, which is called again if another process was
/// faster.
pub(super) async fn change<T>(
    common: &dyn CommonEntries,
    kind: Kind,
    name: &str,
    decide: impl Fn(Option<Entry>) -> (Change, T),
) -> Result<T, StoreError> {
    for _ in 0..ATTEMPTS {
        let old = common.get(kind, name).await?;
        let entry = old.as_deref().map(decode).transpose()?;
        let sealed = entry.as_ref().map(|entry| entry.sealed.clone());
        let (change, answer) = decide(entry);
        let (new, expires, is_of_lease) = match change {
            Change::Leave => return Ok(answer),
            Change::Remove if old.is_none() => return Ok(answer),
            Change::Remove => (None, None, false),
            Change::Put(entry) => (
                Some(encode(kind, &entry)?),
                entry.expires,
                sealed == Some(entry.sealed),
            ),
        };
        let exchange = Exchange {
            old: old.as_deref(),
            new: new.as_deref(),
            expires,
            is_of_lease,
        };
        match common.exchange(kind, name, exchange).await? {
            Exchanged::Done => return Ok(answer),
            Exchanged::Changed => {}
            Exchanged::Full => {
                return Err(StoreError::Full {
                    kind: kind.as_str(),
                });
            }
        }
    }
    Err(StoreError::Common(
        "other replicas change the same entry all the time".to_owned(),
    ))
}
