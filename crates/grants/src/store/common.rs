//! Entries that several processes have in common, in place of a file. Nothing in them can be read by who keeps them.

use std::fmt;
use std::pin::Pin;

use super::StoreError;
use super::database::{Change, Entry, Kind, Stamp, decode, encode};

/// How often a change is tried that others were faster with.
const ATTEMPTS: usize = 8;

/// What takes a while.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, CommonError>> + Send + 'a>>;

/// Why entries were not read or kept. The text is for operators.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CommonError(pub String);

/// One entry that is to become another.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// What it has to be now; `None` for nothing.
    pub old: Option<&'a [u8]>,
    /// What it becomes; `None` for nothing.
    pub new: Option<&'a [u8]>,
    /// When it is of no use any more, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether nothing but its lease changes, which may be lost.
    pub is_of_lease: bool,
}

/// What has become of an [`Exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// It has happened.
    Done,
    /// The entry is another by now.
    Changed,
    /// There are too many entries.
    Full,
}

/// Keeps entries for several processes. Their names are `owner/name`, of hexadecimal digits and of any text.
pub trait CommonEntries: fmt::Debug + Send + Sync {
    /// Seconds since 1970 by the clock that decides for all processes, where the entry of this name is.
    fn now<'a>(&'a self, kind: Kind, name: &'a str) -> Pending<'a, u64>;

    /// The entry of this name.
    fn get<'a>(&'a self, kind: Kind, name: &'a str) -> Pending<'a, Option<Vec<u8>>>;

    /// The entries of an owner, or of all, at most `most`.
    fn list<'a>(
        &'a self,
        kind: Kind,
        owner: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Vec<(String, Vec<u8>)>>;

    /// Exchanges one entry for another, if it still is what it was. When this is done, it is kept as safely as it can be,
    /// unless it is but of a lease.
    fn exchange<'a>(
        &'a self,
        kind: Kind,
        name: &'a str,
        exchange: Exchange<'a>,
    ) -> Pending<'a, Exchanged>;

    /// Removes the entries of an owner, or of all; how many there were.
    fn remove_all<'a>(&'a self, kind: Kind, owner: Option<&'a str>) -> Pending<'a, usize>;

    /// Another than before if another process may have changed something since.
    fn stamp(&self) -> Stamp;

    /// Whether nothing can be read now: what was read stays in use.
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

/// The entries whose names begin with `prefix`, which is empty or an owner with a slash.
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

/// Changes the entry of this name as `decide` says, which is asked again if another process was faster.
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
        "others change the same entry all the time".to_owned(),
    ))
}
