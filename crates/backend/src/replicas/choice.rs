//! Which endpoint a request goes to that is bound to none.
//!
//! Those that can be used come first, and among them those in the gateway's own zone. Of these, two are drawn, and the one
//! that is less busy gets the request ("the power of two choices"): almost as good as asking all of them, and unlike the
//! least busy of all, it is not the same one for everybody at the same moment.

use std::sync::Arc;

use fanlight_protocol::Method;
use smallvec::SmallVec;

use super::member::Member;
use crate::backend::Readiness;
use crate::health::Item;

/// The numbers of the endpoints that a request has been to.
pub(super) type Tried = SmallVec<[u64; 4]>;

/// Endpoints of the same worth.
type Equals<'a> = SmallVec<[&'a Arc<Member>; 8]>;

/// How well an endpoint is suited; the first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suitability {
    Ready { is_far: bool },
    Connecting,
    Down,
}

impl Suitability {
    /// `may_try`: for a request that shows whether calls are answered again.
    fn of(readiness: Readiness, is_far: bool, may_try: bool) -> Self {
        match readiness {
            Readiness::Trial if may_try => Self::Ready { is_far },
            Readiness::Ready => Self::Ready { is_far },
            Readiness::Connecting => Self::Connecting,
            Readiness::Trial | Readiness::Down => Self::Down,
        }
    }
}

/// How the best endpoint that was not tried is off, if there is one.
pub(super) fn best(members: &[Arc<Member>], tried: &[u64]) -> Option<Readiness> {
    open(members, tried)
        .map(|member| member.backend.readiness())
        .min()
}

/// The less busy one of two endpoints among those that are suited best, or one whose calls are to be tried again, if a request
/// of this method ends the trial.
pub(super) fn better_of_two(
    members: &[Arc<Member>],
    tried: &[u64],
    method: &Method,
) -> Option<Arc<Member>> {
    let may_try = Item::is_of(method);
    let (fit, trial) = best_suited(members, tried, may_try);
    if let Some(trial) = trial.filter(|_| may_try) {
        return Some(Arc::clone(trial));
    }
    let first = fastrand::usize(..fit.len().max(1));
    let second =
        (first + 1 + fastrand::usize(..fit.len().saturating_sub(1).max(1))) % fit.len().max(1);
    let drawn = [first, second].into_iter().filter_map(|at| fit.get(at));
    drawn
        .min_by_key(|member| member.load.cost())
        .map(|member| Arc::clone(member))
}

/// The endpoint with the highest value among those that are suited best: while these stay the same, so does it.
pub(super) fn of_key(
    members: &[Arc<Member>],
    tried: &[u64],
    value: impl Fn(u64) -> u64,
) -> Option<Arc<Member>> {
    let (fit, _) = best_suited(members, tried, true);
    fit.into_iter()
        .max_by_key(|member| value(member.number))
        .cloned()
}

/// The endpoints that are suited best, and one of them whose calls are to be tried.
fn best_suited<'a>(
    members: &'a [Arc<Member>],
    tried: &[u64],
    may_try: bool,
) -> (Equals<'a>, Option<&'a Arc<Member>>) {
    let (mut fit, mut trial, mut best) = (Equals::new(), None, Suitability::Down);
    for member in open(members, tried) {
        let readiness = member.backend.readiness();
        let suitability = Suitability::of(readiness, member.place.is_far, may_try);
        if suitability < best {
            (fit, trial, best) = (Equals::new(), None, suitability);
        }
        if suitability == best {
            trial = trial.or((readiness == Readiness::Trial).then_some(member));
            fit.push(member);
        }
    }
    (fit, trial)
}

fn open<'a>(members: &'a [Arc<Member>], tried: &[u64]) -> impl Iterator<Item = &'a Arc<Member>> {
    members
        .iter()
        .filter(|member| !member.is_leaving() && !tried.contains(&member.number))
}
