//! Judges one start of a gateway by the cases.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{Era, Json, Method};
use itertools::Itertools as _;
use tokio::time::Instant;

use super::cases::{ALL, Case, Exchange, LISTEN, Look, SECOND, SECOND_PAGE, TWINS, find_exchange};
use super::client::{Asked, PerfectClient, Transcript};
use super::comparison::{Outcome, braced, compare, note_additions, text_at};
use super::gateway::{Run, Stage, TOKEN, Transport, known_as};
use super::server::{answer, message};
use crate::recording::script::json;

/// The longest conversation after a start.
const CONVERSATION: Duration = Duration::from_secs(60);
/// The delay of progress that counts as held up.
const LATE: Duration = Duration::from_secs(1);
/// The least time between the last progress and the answer. The server sends them 1.5 s apart.
const APART: Duration = Duration::from_millis(700);

/// The outcome of a case.
pub(super) struct Verdict {
    pub(super) case: &'static Case,
    pub(super) outcome: Outcome,
    /// The part as it arrived, or the reason why it did not.
    pub(super) seen: Option<String>,
}

/// Examines a gateway: sends the requests of all cases and judges the answers.
struct Examination<'a> {
    run: Run,
    stage: &'a Stage,
    client: PerfectClient,
    twin: Result<PerfectClient, String>,
    asked: HashMap<&'static str, Result<Transcript, String>>,
    twins: HashMap<&'static str, [Result<Transcript, String>; 2]>,
    remarks: BTreeSet<String>,
}

/// A judged part: the outcome with the seen text, or the reason why nothing came.
type Judged = Result<(Outcome, Option<Json>), String>;

/// Whether a run judges by a case. Gateways have to merge the parts that several servers have in common.
pub(super) fn is_judged(case: &Case, run: Run) -> bool {
    let is_of_one = case.look == Look::Page
        || ["initialize", "example.com/method"].contains(&case.exchange.as_str());
    let is_of_run = match run.servers {
        1 => case.exchange != SECOND,
        _ => !is_of_one,
    };
    case.is_of(run.era) && is_of_run
}

/// The verdicts, and remarks about the gateway's additions.
pub(super) async fn examine(
    run: Run,
    stage: &Stage,
    mut client: PerfectClient,
) -> (Vec<Verdict>, BTreeSet<String>) {
    let end = Instant::now() + CONVERSATION;
    client.end = end;
    let mut examination = Examination {
        run,
        twin: stage.twin(end).await,
        stage,
        client,
        asked: HashMap::new(),
        twins: HashMap::new(),
        remarks: BTreeSet::new(),
    };
    let mut verdicts = Vec::new();
    for case in ALL.cases.iter().filter(|case| is_judged(case, run)) {
        let (outcome, seen) = match examination.judge(case).await {
            Ok((outcome, seen)) => (outcome, seen.map(|it| it.as_text().to_owned())),
            Err(why) => (Outcome::Lost, Some(why)),
        };
        let seen = seen.filter(|_| outcome > Outcome::Kept);
        verdicts.push(Verdict {
            case,
            outcome,
            seen,
        });
    }
    let mut headers = stage
        .servers
        .iter()
        .filter_map(|it| it.header("authorization"));
    if headers.any(|it| it.contains(TOKEN)) {
        let remark = "forwards the client's credentials to the server";
        examination.remarks.insert(remark.to_owned());
    }
    (verdicts, examination.remarks)
}

impl Examination<'_> {
    async fn judge(&mut self, case: &'static Case) -> Judged {
        match case.look {
            _ if self.run.transport == Transport::Stdio && is_unsaid(case, self.run.era) => {
                Ok((Outcome::NotTried, None))
            }
            Look::Page => {
                let list = self.client.list("tools/list", "tools").await?;
                let sent = answer(
                    self.run.era,
                    false,
                    "tools/list",
                    None,
                    &Json::empty_object(),
                );
                Ok(part(case, &sent, list.first.as_ref()))
            }
            Look::Entry => self.entry(case).await,
            Look::Twins => self.twins(case).await,
            _ if case.exchange == "initialize" => {
                let method = match self.run.era {
                    Era::Legacy => "initialize",
                    Era::Modern => "server/discover",
                };
                let sent = self.sent(find_exchange(method)?, &Json::empty_object());
                Ok(part(case, &sent, Some(&self.client.opening)))
            }
            _ => {
                let exchange = find_exchange(&case.exchange)?;
                if !self.asked.contains_key(case.exchange.as_str()) {
                    let asked = self.ask(exchange).await;
                    self.asked.insert(&case.exchange, asked);
                }
                let asked = self.asked.get(case.exchange.as_str()).ok_or("not asked")?;
                let transcript = asked.clone()?;
                self.look(case, exchange, &transcript)
            }
        }
    }

    /// The answer that the server sends.
    fn sent(&self, exchange: &Exchange, params: &Json) -> Json {
        answer(
            self.run.era,
            false,
            &exchange.method,
            Some(exchange),
            params,
        )
    }

    fn look(&mut self, case: &Case, exchange: &Exchange, heard: &Transcript) -> Judged {
        let params = heard.sent.get("params").unwrap_or_else(Json::empty_object);
        let response = &heard.response;
        match case.look {
            Look::Answer if case.at == "/id" => Ok(part(case, &heard.sent, Some(response))),
            Look::Answer => {
                let sent = self.sent(exchange, &params);
                let (is, was) = (response.at_pointer("/result"), sent.at_pointer("/result"));
                if let (Some(is), Some(was)) = (is, was) {
                    let mut added = BTreeSet::new();
                    note_additions(&was, &is, "", &mut added);
                    let added = added.iter().map(|it| format!("adds {it} to results"));
                    self.remarks.extend(added);
                }
                judged(case, &sent, response)
            }
            Look::Notifications => {
                let method = &case.of;
                let sent = exchange.before.iter().map(|it| message(braced(it.get())));
                let sent = params_of(sent, method);
                let found = heard.notifications.iter().map(|(_, it)| it.clone());
                let found = params_of(found, method);
                let token = params.get("_meta").and_then(|it| it.get("progressToken"));
                let sent = match token {
                    Some(token) => {
                        let with = format!(r#""progressToken":{}"#, token.as_text());
                        sent.as_text().replace(r#""progressToken":0"#, &with)
                    }
                    None => sent.as_text().to_owned(),
                };
                let id = heard.sent.get("id").unwrap_or_default();
                let with = format!(r#"subscriptionId":{}"#, id.as_text());
                let sent = sent.replace(r#"subscriptionId":0"#, &with);
                let found = Some(found).filter(|it| it.items().next().is_some());
                let sent = json(sent.as_bytes()).unwrap_or_default();
                Ok(part(case, &sent, found.as_ref()))
            }
            Look::Timely => Ok((timeliness(heard), None)),
            Look::Question => {
                let sent = match exchange.before.first() {
                    Some(question) => message(braced(question.get())),
                    None => self
                        .sent(exchange, &Json::empty_object())
                        .at_pointer("/result/inputRequests")
                        .unwrap_or_default(),
                };
                let found = heard.questions.first();
                found.ok_or_else(|| response.as_text().to_owned())?;
                Ok(part(case, &sent, found))
            }
            Look::Arrived | Look::State => {
                let repeated = text_at(response, "/result/content/0/text");
                let repeated = repeated.and_then(|text| json(text.as_bytes()));
                let repeated = repeated.ok_or_else(|| response.as_text().to_owned())?;
                let issued = self.sent(exchange, &Json::empty_object());
                let issued = issued
                    .at_pointer("/result")
                    .filter(|_| case.look == Look::State);
                Ok(part(case, &issued.unwrap_or(params), Some(&repeated)))
            }
            Look::Header => {
                let header = self
                    .stage
                    .servers
                    .first()
                    .and_then(|it| it.header(&case.of));
                let outcome = match &header {
                    Some(value) if *value == case.at => Outcome::Kept,
                    Some(_) => Outcome::Changed,
                    None => Outcome::Lost,
                };
                Ok((outcome, header.map(|it| Json::string(&it))))
            }
            Look::Page | Look::Entry | Look::Twins => Err("not asked".to_owned()),
        }
    }

    async fn entry(&mut self, case: &Case) -> Judged {
        let method = case.of.as_str();
        let member = ListKind::from_method(&Method::from_name(method)).map_or("", ListKind::member);
        let mut sent = Vec::new();
        let next = json(format!(r#"{{"cursor":"{SECOND_PAGE}"}}"#).as_bytes());
        let exchange = find_exchange(method).ok();
        let (first, next) = (Json::empty_object(), next.unwrap_or_else(Json::null));
        for (is_second, params) in [(false, &first), (false, &next), (true, &first)] {
            let page = answer(self.run.era, is_second, method, exchange, params);
            let entries = page.at_pointer(&format!("/result/{member}"));
            sent.extend(entries.iter().flat_map(Json::items));
        }
        let list = self.client.list(method, member).await?;
        let (sent, found) = (
            find_named(&sent, &case.exchange),
            find_named(&list.entries, &case.exchange),
        );
        let missing = || format!("{method} has no {:?}", case.exchange);
        let (sent, found) = (sent.ok_or_else(missing)?, found.ok_or_else(missing)?);
        Ok(part(case, sent, Some(found)))
    }

    async fn ask(&mut self, exchange: &'static Exchange) -> Result<Transcript, String> {
        let name = match exchange.method.starts_with("tasks/") {
            true => self.task().ok_or("no task was begun")?,
            false => name_at(&mut self.client, exchange).await?,
        };
        if exchange.method == LISTEN {
            let resource = name_at(&mut self.client, find_exchange("resources/read")?).await?;
            let params = exchange.params.replace("%uri", &resource);
            return self.client.ask(&request(exchange, "", &params)).await;
        }
        let asked = request(exchange, &name, &exchange.params);
        self.client.ask(&asked).await
    }

    /// The id of the task that a call has begun.
    fn task(&self) -> Option<String> {
        let places = [("task", "/result/task/taskId"), ("begun", "/result/taskId")];
        places.iter().find_map(|(exchange, place)| {
            let begun = self.asked.get(exchange)?.as_ref().ok()?;
            text_at(&begun.response, place)
        })
    }

    /// Lets both clients send the same request with the same id and progress token.
    async fn twins(&mut self, case: &Case) -> Judged {
        let method = case.of.as_str();
        if !self.stage.has_listener() {
            return Ok((Outcome::NotTried, None));
        }
        let exchange = find_exchange(&case.exchange)?;
        if !self.twins.contains_key(case.exchange.as_str()) {
            let name = name_at(&mut self.client, exchange).await?;
            let params = TWINS.map(|who| exchange.params.replace("%who", who));
            let [one, other] = [0, 1].map(|at| request(exchange, &name, params[at].as_str()));
            let twin = self.twin.as_mut().map_err(|why| why.clone())?;
            let asked = tokio::join!(self.client.ask(&one), twin.ask(&other));
            self.twins.insert(&exchange.name, asked.into());
        }
        let heard = self.twins.get(case.exchange.as_str()).ok_or("not asked")?;
        let of_method = |it: &&Json| it.get("method").is_some_and(|it| it.is_str(method));
        let mut outcome = Outcome::Kept;
        for (heard, (own, others)) in heard.iter().zip([(0, 1), (1, 0)]) {
            let heard = heard.as_ref().map_err(Clone::clone)?;
            let notifications = heard.notifications.iter().map(|(_, it)| it);
            let messages = notifications.chain(&heard.questions).filter(of_method);
            let answer = Some(&heard.response).filter(|_| method.is_empty());
            let texts = messages.chain(answer).map(Json::as_text).collect_vec();
            let names = |who: usize| texts.iter().any(|text| text.contains(TWINS[who]));
            outcome = outcome.max(match (names(others), names(own)) {
                (true, _) => Outcome::Leaked,
                (false, true) => Outcome::Kept,
                (false, false) => Outcome::Lost,
            });
        }
        Ok((outcome, None))
    }
}

/// Whether a server over stdio cannot send the part: it gets no headers, and without sessions
/// nothing shows which request a log message or an unknown notification belongs to.
fn is_unsaid(case: &Case, era: Era) -> bool {
    let is_modern = era == Era::Modern;
    match case.look {
        Look::Header => true,
        Look::Twins => is_modern && case.of == "notifications/message",
        Look::Notifications => is_modern && case.of.contains("example.com"),
        _ => false,
    }
}

fn request<'a>(exchange: &'a Exchange, name: &'a str, params: &'a str) -> Asked<'a> {
    Asked {
        method: &exchange.method,
        name,
        params,
        meta: &exchange.meta,
        id: &exchange.id,
        expects: exchange.before.len(),
    }
}

/// The gateway's name for the tool, prompt or resource of an exchange.
async fn name_at(client: &mut PerfectClient, exchange: &Exchange) -> Result<String, String> {
    let (method, member, key) = match exchange.method.as_str() {
        _ if exchange.name.is_empty() => return Ok(String::new()),
        "tools/call" => ("tools/list", "tools", "/name"),
        "prompts/get" => ("prompts/list", "prompts", "/name"),
        _ => ("resources/list", "resources", "/uri"),
    };
    let list = client.list(method, member).await?;
    let names = list.entries.iter().filter_map(|it| text_at(it, key));
    // Gateways may put a prefix into a URI, too.
    let name = exchange.name.rsplit("://").next().unwrap_or_default();
    known_as(names, name).ok_or_else(|| format!("{method} has no {name:?}"))
}

fn find_named<'a>(entries: &'a [Json], name: &str) -> Option<&'a Json> {
    let names = |entry: &Json| {
        let names = ["/uri", "/name"].map(|key| text_at(entry, key));
        known_as(names.into_iter().flatten(), name)
    };
    let found = entries.iter().filter_map(|it| Some((names(it)?.len(), it)));
    found.min_by_key(|(length, _)| *length).map(|(_, it)| it)
}

/// Compares the part of a case.
fn part(case: &Case, sent: &Json, found: Option<&Json>) -> (Outcome, Option<Json>) {
    let found = found.and_then(|it| it.at_pointer(&case.at));
    let sent = sent.at_pointer(&case.at).unwrap_or_default();
    (compare(&sent, found.as_ref(), case.exactly), found)
}

/// Compares the part of a case in a response. An unexpected error is the reason of a loss.
fn judged(case: &Case, sent: &Json, response: &Json) -> Judged {
    match part(case, sent, Some(response)) {
        (Outcome::Lost, None)
            if sent.get("result").is_some() != response.get("result").is_some() =>
        {
            Err(response.as_text().to_owned())
        }
        judged => Ok(judged),
    }
}

/// The parameters of the messages with this method, as an array.
fn params_of(messages: impl Iterator<Item = Json>, method: &str) -> Json {
    let of_method = messages.filter(|it| it.get("method").is_some_and(|it| it.is_str(method)));
    let params = of_method.map(|it| it.get("params").unwrap_or_else(Json::empty_object));
    let params = params.map(|it| it.to_string()).join(",");
    json(format!("[{params}]").as_bytes()).unwrap_or_default()
}

fn timeliness(heard: &Transcript) -> Outcome {
    let is_progress = |it: &Json| {
        it.get("method")
            .is_some_and(|it| it.is_str("notifications/progress"))
    };
    let progress = heard.notifications.iter().filter(|(_, it)| is_progress(it));
    let Some(last) = progress.map(|(at, _)| *at).max() else {
        return Outcome::Lost;
    };
    let is_late =
        last - heard.asked > LATE || heard.answered.saturating_duration_since(last) < APART;
    if is_late {
        Outcome::HeldUp
    } else {
        Outcome::Kept
    }
}
