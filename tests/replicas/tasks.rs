//! Tasks learnt by one replica, and requests about them at another.

use fanlight_testkit::slicer;

use crate::group::{Group, members, send, until};
use crate::harness::{Gateway, TempFile};
use crate::linked::{Client, LinkedGroup};
use crate::made_tasks::about;
use crate::raw_client::{Response, legacy_request, modern_request_with};
use crate::scripted::{Backend, Era, Received, Reply, Stream, Task, Transport};
use crate::signing_in::{ANN, BOB};
use crate::valkey::Valkey;

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0,"cacheScope":"public"}"#;
const TASK: Task<'_> = Task {
    id: "t-1",
    status: "working",
    ttl: 60_000,
    poll: 1000,
};

/// A modern server with tasks and one tool; the server knows the task.
pub(crate) async fn backend() -> Backend {
    backend_over(Transport::Http).await
}

pub(crate) async fn backend_over(transport: Transport) -> Backend {
    let backend = Backend::start(Era::Modern, transport).await;
    backend.on("server/discover", Reply::result(DISCOVERED));
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::result(TASK.created(Era::Modern)));
    backend.on("tasks/get", Reply::result(TASK.got(Era::Modern, "")));
    backend
}

/// The answer to a request of a client with tasks.
pub(crate) async fn ask(gateway: &Gateway, method: &str, params: &str, key: &str) -> String {
    asked(gateway, method, params, key).await.text().await
}

async fn asked(gateway: &Gateway, method: &str, params: &str, key: &str) -> Response {
    let fields = [("Authorization", format!("Bearer {key}"))];
    let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    send(
        gateway,
        &modern_request_with(tasks, "1", method, params, ""),
        &fields,
    )
    .await
}

#[tokio::test]
async fn task_is_asked_of_its_own_server_at_every_replica_and_belongs_to_its_client() {
    let (valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
    let entries = [first.entry("first"), second.entry("second")].join(",");
    let group = Group::new(entries, "");
    let (mut one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let made = ask(
        &one,
        "tools/call",
        r#""name":"second__t","arguments":{}"#,
        ANN,
    )
    .await;
    assert!(made.contains("t-1"), "{made}");
    one.kill().await;
    let asked = ask(&other, "tasks/get", r#""taskId":"t-1""#, ANN).await;
    assert!(
        slicer::member_at(&asked, &["result", "taskId"]).is_some(),
        "{asked}"
    );
    assert!(first.received("tasks/get").is_empty() && !second.received("tasks/get").is_empty());
    // Another client's task does not exist, as one that nobody has made.
    let before = second.received("tasks/get").len();
    for method in ["tasks/get", "tasks/cancel"] {
        let of_other = ask(&other, method, r#""taskId":"t-1""#, BOB).await;
        let of_nobody = ask(&other, method, r#""taskId":"t-2""#, BOB).await;
        assert_eq!(of_other, of_nobody);
        assert!(of_other.contains("Task not found"), "{of_other}");
    }
    assert!(first.received("tasks/get").is_empty());
    assert_eq!(second.received("tasks/get").len(), before);
}

#[tokio::test]
async fn task_at_the_only_server_belongs_to_its_client_at_every_replica() {
    let (valkey, only) = (Valkey::start().await, backend().await);
    let group = Group::new(only.entry("only"), "");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let made = ask(&one, "tools/call", r#""name":"t","arguments":{}"#, ANN).await;
    assert!(made.contains("t-1"), "{made}");
    for at in [&one, &other] {
        let own = ask(at, "tasks/get", r#""taskId":"t-1""#, ANN).await;
        assert!(
            slicer::member_at(&own, &["result", "taskId"]).is_some(),
            "{own}"
        );
        let before = only.received("tasks/get").len();
        let of_other = ask(at, "tasks/get", r#""taskId":"t-1""#, BOB).await;
        assert!(of_other.contains("Task not found"), "{of_other}");
        assert_eq!(only.received("tasks/get").len(), before);
    }
}

pub(crate) const EVERYTHING: &str = "permit(principal, action, resource);";
/// Nobody may call `erase` or look into this folder.
const LESS: &str = r#"permit(principal, action, resource);
    forbid(principal, action == Action::"call", resource == Tool::"second/erase");
    forbid(principal, action == Action::"call", resource == Tool::"second/look")
        when { context.arguments has path && context.arguments.path like "/private/*" };"#;
/// Only tools that declare themselves read-only may be called.
const READING: &str = r#"permit(principal, action == Action::"call", resource) when { resource has readOnlyHint && resource.readOnlyHint };"#;

/// Two servers. The second one has three tools that begin tasks, of which `look` declares itself
/// read-only.
struct Scene {
    valkey: Valkey,
    first: Backend,
    second: Backend,
    files: Vec<TempFile>,
}

impl Scene {
    async fn start() -> Self {
        let (valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
        second.on(
            "tools/list",
            second.list(
                "tools",
                &format!("{},{},{}", tool("look"), tool("erase"), tool("t")),
            ),
        );
        second.on("tools/call", Reply::compute(begun));
        Self {
            valkey,
            first,
            second,
            files: Vec::new(),
        }
    }

    /// Starts a replica with these policies.
    async fn replica(&mut self, policies: &str) -> Gateway {
        let file = TempFile::new("cedar", policies);
        let entries = [self.first.entry("first"), self.second.entry("second")].join(",");
        let group = Group::new(
            entries,
            &format!(r#","policy":{{"files":[{:?}]}}"#, file.path()),
        );
        self.files.push(file);
        group.start(self.valkey.url()).await
    }

    /// Makes a client begin a task with this id.
    async fn begins(&self, at: &Gateway, tool: &str, task: &str, more: &str, key: &str) {
        let params = format!(r#""name":"second__{tool}","arguments":{{"task":"{task}"{more}}}"#);
        let made = ask(at, "tools/call", &params, key).await;
        assert_eq!(
            slicer::member(&made, "result.taskId"),
            Some(&*format!("{task:?}")),
            "{made}"
        );
    }

    /// Whether a client is told of a task. If not, checks that the answer is that for a task that
    /// was never made, and that no server was asked.
    async fn knows(&self, at: &Gateway, task: &str, key: &str) -> bool {
        let asked =
            || self.first.received("tasks/get").len() + self.second.received("tasks/get").len();
        let before = asked();
        let answer = ask(at, "tasks/get", &format!(r#""taskId":"{task}""#), key).await;
        if slicer::member(&answer, "result.taskId").is_some() {
            assert!(self.first.received("tasks/get").is_empty());
            return true;
        }
        let never_made = ask(at, "tasks/get", r#""taskId":"never""#, key).await;
        assert_eq!((answer, asked()), (never_made, before));
        false
    }

    /// The keys of all tasks in Valkey.
    async fn keys(&self) -> Vec<String> {
        let all = self.valkey.ask("KEYS fanlight:*:task").await;
        all.lines()
            .map(str::trim)
            .filter(|line| line.starts_with("fanlight:"))
            .map(str::to_owned)
            .collect()
    }

    /// Valkey's record of a task.
    async fn record(&self, key: &str) -> String {
        let got = self.valkey.ask(&format!("GET {key}")).await;
        got.lines().nth(1).expect("a record").trim().to_owned()
    }

    async fn put(&self, key: &str, record: &str) {
        let put = self
            .valkey
            .ask(&format!(r#"SET {key} "{record}" KEEPTTL"#))
            .await;
        assert!(put.starts_with("+OK"), "{put}");
    }
}

fn tool(name: &str) -> String {
    let reads = name == "look";
    format!(
        r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string"}}}}}},"annotations":{{"readOnlyHint":{reads}}}}}"#
    )
}

/// The task that a call begins, with the id in its arguments.
fn begun(call: &Received) -> String {
    let id = call
        .member("params.arguments.task")
        .and_then(slicer::plain_string)
        .unwrap();
    Task { id, ..TASK }.created(Era::Modern)
}

#[tokio::test]
async fn task_is_known_at_a_replica_whose_own_policy_permits_the_call_that_made_it() {
    let mut scene = Scene::start().await;
    let (mut one, other) = (
        scene.replica(EVERYTHING).await,
        scene.replica(EVERYTHING).await,
    );
    scene.begins(&one, "look", "t-1", "", ANN).await;
    one.kill().await;
    assert!(scene.knows(&other, "t-1", ANN).await);
    assert!(
        scene.knows(&other, "t-1", ANN).await,
        "also after it has been asked for once"
    );
    assert!(!scene.knows(&other, "t-1", BOB).await);
    let reads = scene.replica(READING).await;
    assert!(
        scene.knows(&reads, "t-1", ANN).await,
        "by what the server says of the tool"
    );
}

#[tokio::test]
async fn task_is_unknown_at_a_replica_whose_own_policy_denies_the_call_that_made_it() {
    let mut scene = Scene::start().await;
    let (one, other, less) = (
        scene.replica(EVERYTHING).await,
        scene.replica(EVERYTHING).await,
        scene.replica(LESS).await,
    );
    let long = format!(r#","path":"/public/{}""#, "x".repeat(2000));
    for (tool, task, more, known) in [
        ("erase", "t-1", "", false),
        ("look", "t-2", r#","path":"/private/a""#, false),
        ("look", "t-3", r#","path":"/public/a""#, true),
        // Arguments that are too long to be stored are unknown to a policy that reads one.
        ("t", "t-4", long.as_str(), false),
    ] {
        scene.begins(&one, tool, task, more, ANN).await;
        assert_eq!(scene.knows(&less, task, ANN).await, known, "{tool} {more}");
        assert!(scene.knows(&one, task, ANN).await && scene.knows(&other, task, ANN).await);
    }
    let reads = scene.replica(READING).await;
    assert!(!scene.knows(&reads, "t-1", ANN).await && scene.knows(&reads, "t-3", ANN).await);
}

#[tokio::test]
async fn client_is_told_of_its_task_at_a_replica_whose_own_policy_permits_the_call_that_made_it() {
    let mut scene = Scene::start().await;
    scene.second.on("subscriptions/listen", Reply::listening());
    let (one, other, less) = (
        scene.replica(EVERYTHING).await,
        scene.replica(EVERYTHING).await,
        scene.replica(LESS).await,
    );
    scene.begins(&one, "erase", "t-1", "", ANN).await;
    let listen = async |at: &Gateway, key| {
        let mut stream = asked(
            at,
            "subscriptions/listen",
            r#""notifications":{"taskIds":["t-1"]}"#,
            key,
        )
        .await;
        let opened = stream.event().await.unwrap().expect("an acknowledgement");
        (opened.contains("t-1"), stream)
    };
    for (at, key) in [(&less, ANN), (&other, BOB)] {
        assert!(!listen(at, key).await.0);
    }
    let (is_heard, mut stream) = listen(&other, ANN).await;
    assert!(is_heard);
    let is_about = |stream: &Stream| stream.filter().is_some_and(|filter| filter.contains("t-1"));
    let server = scene
        .second
        .streams()
        .into_iter()
        .find(is_about)
        .expect("a subscription to the task");
    server
        .notify("notifications/tasks", &TASK.members(Era::Modern))
        .await;
    let told = stream.event().await.unwrap().expect("an update");
    assert!(
        told.contains("notifications/tasks") && told.contains("t-1"),
        "{told}"
    );
}

#[tokio::test]
async fn task_of_a_session_is_known_under_a_policy_to_the_replica_that_takes_the_session_over() {
    let (valkey, first) = (Valkey::start().await, backend().await);
    let second = Backend::start(Era::Legacy, Transport::Http).await;
    second.declares(
        r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#,
    );
    let can_be_a_task =
        r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}"#;
    second.on("tools/list", second.list("tools", can_be_a_task));
    second.on("tools/call", Reply::result(TASK.created(Era::Legacy)));
    second.on("tasks/get", Reply::result(TASK.got(Era::Legacy, "")));
    let policy = TempFile::new("cedar", EVERYTHING);
    let entries = [first.entry("first"), second.entry("second")].join(",");
    let group = LinkedGroup::new(
        entries,
        &format!(r#","policy":{{"files":[{:?}]}}"#, policy.path()),
    );
    let (mut owner, mut other) = group.start_two(&valkey.url()).await;
    let (client, neighbour) = (
        Client::open(&owner, ANN).await,
        Client::open(&owner, BOB).await,
    );
    let call = legacy_request(
        "1",
        "tools/call",
        r#""name":"second__t","arguments":{},"task":{}"#,
    );
    let made = client.post(&owner, &call).await.messages().await.1;
    assert_eq!(
        slicer::member(&made, "result.task.taskId"),
        Some(r#""t-1""#),
        "{made}"
    );
    for _ in 0..2 {
        owner.gateway.kill().await;
        until("one replica", async || members(&other.gateway).await == 1).await;
        let got = about(&client, &other, "tasks/get", "t-1").await;
        assert_eq!(
            slicer::member(&got, "result.taskId"),
            Some(r#""t-1""#),
            "{got}"
        );
        // No other client knows the task.
        let unknown = about(&neighbour, &other, "tasks/get", "t-1").await;
        assert_eq!(
            slicer::member(&unknown, "error.code"),
            Some("-32602"),
            "{unknown}"
        );
        (owner, other) = (other, group.start(&valkey.url()).await);
    }
    assert!(first.received("tasks/get").is_empty());
}

#[tokio::test]
async fn task_of_another_replica_is_unknown_under_a_policy_while_valkey_is_away() {
    let mut scene = Scene::start().await;
    let (one, other) = (
        scene.replica(EVERYTHING).await,
        scene.replica(EVERYTHING).await,
    );
    scene.begins(&one, "look", "t-1", "", ANN).await;
    scene.valkey.kill().await;
    assert!(!scene.knows(&other, "t-1", ANN).await && scene.knows(&one, "t-1", ANN).await);
}

#[tokio::test]
async fn task_is_unknown_where_no_policy_has_decided_or_its_tool_is_not_known() {
    // A policy that permits everything changes nothing.
    const NEARLY_EVERYTHING: &str =
        r#"permit(principal, action, resource) unless {resource == Tool::"first/write_file"};"#;
    let mut scene = Scene::start().await;
    let entries = [scene.first.entry("first"), scene.second.entry("second")].join(",");
    let free = Group::new(entries, "");
    let free = free.start(scene.valkey.url()).await;
    scene.begins(&free, "look", "t-1", "", ANN).await;
    let one = scene.replica(NEARLY_EVERYTHING).await;
    assert!(
        !scene.knows(&one, "t-1", ANN).await,
        "what made it was not kept"
    );
    scene.begins(&one, "look", "t-2", "", ANN).await;
    scene
        .second
        .on("tools/list", scene.second.list("tools", &tool("t")));
    let later = scene.replica(NEARLY_EVERYTHING).await;
    assert!(
        !scene.knows(&later, "t-2", ANN).await,
        "its server has no such tool any more"
    );
}

#[tokio::test]
async fn record_of_a_tasks_call_cannot_be_changed_in_valkey() {
    let mut scene = Scene::start().await;
    let (one, less) = (scene.replica(EVERYTHING).await, scene.replica(LESS).await);
    scene.begins(&one, "erase", "t-1", "", ANN).await;
    let denied = scene.keys().await.pop().unwrap();
    scene
        .begins(&one, "look", "t-2", r#","path":"/public/a""#, ANN)
        .await;
    let permitted = scene
        .keys()
        .await
        .into_iter()
        .find(|key| *key != denied)
        .unwrap();
    let (of_denied, of_permitted) = (scene.record(&denied).await, scene.record(&permitted).await);
    for secret in ["second", "look", "public", "t-2"] {
        assert!(!of_permitted.contains(secret), "{of_permitted}");
    }
    // A permitted task's record of the same client replaces a denied task's record.
    scene.put(&denied, &of_permitted).await;
    assert!(!scene.knows(&less, "t-1", ANN).await);
    scene.put(&permitted, &of_denied).await;
    assert!(!scene.knows(&less, "t-2", ANN).await);
    // Another client's record has the same id and tool.
    scene.begins(&one, "look", "t-1", "", BOB).await;
    let known = [&denied, &permitted];
    let of_bob = scene
        .keys()
        .await
        .into_iter()
        .find(|key| !known.contains(&key))
        .unwrap();
    let of_bob = scene.record(&of_bob).await;
    assert!(scene.knows(&less, "t-1", BOB).await);
    scene.put(&denied, &of_bob).await;
    assert!(!scene.knows(&less, "t-1", ANN).await);
    // Records that are changed, cut, or unsealed.
    let (clear, sealed) = of_permitted.split_once(' ').expect("a record with a seal");
    let changed = sealed.replacen(
        &sealed[20..21],
        if &sealed[20..21] == "A" { "B" } else { "A" },
        1,
    );
    for record in [
        &*format!("{clear} {changed}"),
        &sealed[..sealed.len() - 4],
        sealed,
        clear,
        "second",
        "",
        " ",
    ] {
        scene.put(&permitted, record).await;
        assert!(!scene.knows(&less, "t-2", ANN).await, "{record}");
    }
    scene.put(&permitted, &of_permitted).await;
    assert!(
        scene.knows(&less, "t-2", ANN).await,
        "the record itself is as it was"
    );
}
