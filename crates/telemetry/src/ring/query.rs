//! Queries of the ring, with filters. The newest or the slowest traces come first.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_protocol::Method;
use opentelemetry::trace::TraceId;

use super::{Entry, Ring, Side, Trace, TraceContent, TraceOutcome};
use crate::names::Kind;
use crate::record::{OptionalFields, Record};
use crate::{ClientName, ErrorType, Subject};

/// A filter of traces; all given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// One of the spans belongs to a message to or from this server.
    pub backend: Option<String>,
    /// One of the spans calls this tool, by the client's or the server's name for it.
    pub tool: Option<String>,
    /// One of the spans has this method, or is a `connect` span.
    pub method: Option<String>,
    /// The name or version of the client contains this text, ignoring case.
    pub client: Option<String>,
    /// The principal of the client has this name.
    pub principal: Option<String>,
    /// The trace has this outcome.
    pub outcome: Option<TraceOutcome>,
    /// The trace is Fanlight's own, or a client's.
    pub own: Option<bool>,
    /// Whether one of the spans failed.
    pub error: Option<bool>,
    /// The id, or the name or an attribute of a span, contains this text, ignoring case.
    pub text: Option<String>,
    /// The trace began at this time or later.
    pub since: Option<SystemTime>,
    /// The trace began before this time.
    pub until: Option<SystemTime>,
    /// The trace lasted at least this long.
    pub at_least: Option<Duration>,
    /// The trace began before the trace with this number. Queries of the next page use it, newest
    /// first.
    pub before: Option<u64>,
    /// The limit of the returned traces; 0 returns all.
    pub limit: usize,
    /// The order of the returned traces.
    pub order: Order,
}

/// The order of traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest trace is first.
    #[default]
    Newest,
    /// The slowest trace is first.
    Slowest,
}

impl Ring {
    /// The traces that match `query`, in its order.
    pub fn query(&self, query: &Query) -> Vec<Trace> {
        let limit = if query.limit == 0 {
            usize::MAX
        } else {
            query.limit
        };
        let text = query.text.as_deref().map(str::to_lowercase);
        let fits = |trace: &Trace| text.as_deref().is_none_or(|text| trace.has_text(text));
        let ids: Vec<TraceId> = self.state.lock().order.iter().rev().copied().collect();
        // The lock is taken for each trace, so it is never held for long.
        let matching = ids.into_iter().filter_map(|id| {
            let records = self.state.lock().traces.get(&id).cloned()?;
            records.matches(query).then_some((id, records))
        });
        match query.order {
            Order::Newest => matching
                .map(|(id, records)| records.to_trace(id))
                .filter(fits)
                .take(limit)
                .collect(),
            Order::Slowest => {
                let mut all: Vec<_> = matching.collect();
                // The sort is stable: of equally slow traces the newest is first.
                all.sort_by_cached_key(|(_, records)| Reverse(records.duration()));
                all.into_iter()
                    .map(|(id, records)| records.to_trace(id))
                    .filter(fits)
                    .take(limit)
                    .collect()
            }
        }
    }

    /// The trace with this id, or the one that has its spans as a further round.
    pub fn get(&self, id: TraceId) -> Option<Trace> {
        let (first, records) = self.records(id)?;
        Some(records.to_trace(first))
    }

    /// The same, if it matches `query`.
    pub fn find(&self, id: TraceId, query: &Query) -> Option<Trace> {
        let (first, records) = self.records(id)?;
        let trace = records.matches(query).then(|| records.to_trace(first))?;
        let text = query.text.as_deref().map(str::to_lowercase);
        text.is_none_or(|text| trace.has_text(&text))
            .then_some(trace)
    }

    fn records(&self, id: TraceId) -> Option<(TraceId, Entry)> {
        let state = self.state.lock();
        let has_round = |(_, entry): &(&TraceId, &Entry)| {
            let mut spans = entry.spans.iter();
            entry.has_rounds && spans.any(|(span, _)| span.trace_id() == id)
        };
        let own = state.traces.get_key_value(&id);
        let (first, entry) = own.or_else(|| state.traces.iter().find(has_round))?;
        Some((*first, entry.clone()))
    }
}

impl Entry {
    fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.spans.iter().map(|(span, _)| span)
    }

    /// Whether all conditions except the text hold. This check needs no spans of the SDK.
    fn matches(&self, query: &Query) -> bool {
        let any = |has: &dyn Fn(&Record) -> bool| self.records().any(|span| has(span));
        let has = |wanted: &Option<String>, of: fn(&Record, &str) -> bool| {
            wanted
                .as_ref()
                .is_none_or(|wanted| any(&|span| of(span, wanted)))
        };
        let start = || self.start().unwrap_or(SystemTime::UNIX_EPOCH);
        query.before.is_none_or(|before| self.number < before)
            && query.since.is_none_or(|since| start() >= since)
            && query.until.is_none_or(|until| start() < until)
            && query.at_least.is_none_or(|least| self.duration() >= least)
            && has(&query.backend, Record::is_of_backend)
            && has(&query.tool, Record::calls)
            && has(&query.method, Record::is_of_method)
            && has(&query.client, Record::is_of_client)
            && has(&query.principal, Record::is_of_principal)
            && query
                .error
                .is_none_or(|wanted| any(&|span| span.error().is_some()) == wanted)
            && query.own.is_none_or(|wanted| self.is_own() == wanted)
            && query.outcome.is_none_or(|wanted| self.outcome() == wanted)
    }

    fn start(&self) -> Option<SystemTime> {
        self.records().map(|span| span.start.began.wall()).min()
    }

    /// The spans of requests: those without a parent in this process.
    fn tops(&self) -> impl Iterator<Item = &Arc<Record>> {
        let is_top = |span: &&Arc<Record>| span.parent.is_none_or(|parent| parent.is_remote);
        self.records().filter(is_top)
    }

    /// The time from the first start to the last end, or of the rounds of a call, without the waits for
    /// people.
    fn duration(&self) -> Duration {
        self.total_duration().saturating_sub(self.waited())
    }

    fn total_duration(&self) -> Duration {
        if self.has_rounds {
            return self
                .tops()
                .filter_map(|span| span.fields.lock().lasted)
                .sum();
        }
        let ends = self
            .records()
            .map(|span| span.start.began.wall() + span.fields.lock().lasted.unwrap_or_default());
        let between = |start, end: SystemTime| end.duration_since(start).ok();
        self.start()
            .zip(ends.max())
            .and_then(|(start, end)| between(start, end))
            .unwrap_or_default()
    }

    /// The time during which the trace waited for an approval, or for the client's answers to
    /// questions.
    fn waited(&self) -> Duration {
        let mut waits: Vec<_> = self.records().flat_map(|span| span.waits()).collect();
        waits.sort();
        let (mut sum, mut until) = (Duration::ZERO, SystemTime::UNIX_EPOCH);
        for (start, lasted) in waits {
            let end = start + lasted;
            sum += end.duration_since(start.max(until)).unwrap_or_default();
            until = until.max(end);
        }
        sum
    }

    /// The span of the request: the first one, or of a call in rounds the last one.
    fn request(&self) -> Option<&Arc<Record>> {
        let began = |span: &&Arc<Record>| span.start.began.wall();
        match self.has_rounds {
            true => self.tops().max_by_key(began),
            false => self.tops().min_by_key(began),
        }
    }

    /// The span that failed: the request's, or else any other.
    fn failure(&self) -> Option<(&Arc<Record>, ErrorType)> {
        let mut spans = self.request().into_iter().chain(self.records());
        spans.find_map(|span| Some((span, span.error()?)))
    }

    fn outcome(&self) -> TraceOutcome {
        TraceOutcome::from_error(self.failure().map(|(_, error)| error))
    }

    fn side(&self) -> Option<Side> {
        let (span, error) = self.failure()?;
        if span.has_optional(|fields| fields.gate.is_some()) {
            return Some(Side::Gateway);
        }
        let to_server =
            |span: &Record| span.start.kind != Kind::Server && span.start.backend.is_some();
        let mut spans = self.records();
        let at_server = spans.any(|span| to_server(span) && span.error().is_some());
        Some(Side::judge(error, at_server))
    }

    /// Whether no request of a client is part of the trace.
    fn is_own(&self) -> bool {
        let is_of_client =
            |span: &Arc<Record>| span.start.kind == Kind::Server && span.start.backend.is_none();
        self.request().is_some() && !self.records().any(is_of_client)
    }

    fn has_ended(&self) -> bool {
        self.request()
            .is_some_and(|span| !span.has_optional(|fields| fields.issued.is_some()))
    }

    fn to_trace(&self, id: TraceId) -> Trace {
        let spans = self.records().map(|span| span.to_span_data()).collect();
        let (duration, outcome, side) = (self.duration(), self.outcome(), self.side());
        let (is_own, has_ended) = (self.is_own(), self.has_ended());
        let (number, dropped, attempts) = (self.number, self.dropped, self.attempts);
        let owners = self.records().filter_map(|span| span.own_content());
        let content = owners.flat_map(|content| content.messages());
        let content = content.map(TraceContent::from_message).collect();
        Trace {
            number,
            id,
            spans,
            dropped,
            attempts,
            duration,
            outcome,
            side,
            is_own,
            has_ended,
            content,
        }
    }
}

impl Record {
    /// The error, if [`super::failure`] has a value for the span.
    fn error(&self) -> Option<ErrorType> {
        let probes = self.start.kind == Kind::Client && self.start.method == Some(Method::Discover);
        self.fields.lock().error.filter(|_| !probes)
    }

    fn has_optional(&self, is_set: impl FnOnce(&OptionalFields) -> bool) -> bool {
        let fields = self.fields.lock();
        fields.optional.as_deref().is_some_and(is_set)
    }

    /// The times during which the span waited for a person.
    fn waits(&self) -> Vec<(SystemTime, Duration)> {
        let fields = self.fields.lock();
        let approvals = fields.optional.iter().flat_map(|optional| &optional.waits);
        let is_question = self.start.kind == Kind::Client
            && self.start.backend.is_none()
            && self
                .start
                .method
                .as_ref()
                .is_some_and(Method::is_input_request);
        let question = fields.lasted.filter(|_| is_question);
        let question = question.map(|lasted| (self.start.began.wall(), lasted));
        approvals.copied().chain(question).collect()
    }

    fn is_of_backend(&self, name: &str) -> bool {
        self.start
            .backend
            .as_ref()
            .is_some_and(|backend| *backend.shared().name == *name)
    }

    fn calls(&self, tool: &str) -> bool {
        matches!(self.subject(&self.fields.lock()), Subject::Tool(name) if name == tool)
    }

    fn is_of_method(&self, name: &str) -> bool {
        self.start
            .method
            .as_ref()
            .map_or_else(|| self.name_without_method(), Method::as_str)
            == name
    }

    fn is_of_client(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.has_client(|client| {
            let mut given = [client.name(), client.version()].into_iter().flatten();
            given.any(|given| given.to_lowercase().contains(&text))
        })
    }

    fn is_of_principal(&self, name: &str) -> bool {
        self.has_client(|client| client.principal() == Some(name))
    }

    fn has_client(&self, is_meant: impl FnOnce(&ClientName) -> bool) -> bool {
        self.fields.lock().client.as_deref().is_some_and(is_meant)
    }
}
