//! Merging lists, and mapping names.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanlight_canonical::{Endpoint, Holder, Principal};
use fanlight_gateway::cursor::{CursorSeal, Position};
use fanlight_gateway::merge::{Contribution, Except, merge};
use fanlight_gateway::{NamingPolicy, namings};
use fanlight_protocol::Json;
use fanlight_protocol::json::union;
use fanlight_protocol::seal::Keys;

criterion_group!(
    benches,
    merge_members_and_meta,
    walk_entries,
    visible_names,
    union_of_capabilities,
    cursor_there_and_back
);
criterion_main!(benches);

const BACKENDS: usize = 10;
const TOOLS: usize = 50;

fn tool(index: usize) -> String {
    format!(
        r#"{{"name":"tool_{index:03}","description":"Looks up record {index} and returns what is known of it.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string"}}}}}}}}"#
    )
}

fn list(backend: usize) -> Json {
    let tools: Vec<_> = (0..TOOLS).map(tool).collect();
    let text = format!(
        r#"{{"resultType":"complete","ttlMs":{},"cacheScope":"public","tools":[{}],"_meta":{{"dev.example/a":{backend},"dev.example/b":true}}}}"#,
        60_000 + backend,
        tools.join(",")
    );
    Json::parse(text.into(), 128).unwrap_or_else(|_| Json::null())
}

fn contributions() -> Vec<Contribution> {
    let one = |backend| Contribution {
        backend: format!("s{backend}"),
        outcome: fanlight_canonical::Outcome::Ok,
        reason: None,
        results: vec![list(backend)],
        is_stale: false,
    };
    (0..BACKENDS).map(one).collect()
}

/// Merges everything in ten lists except their entries.
fn merge_members_and_meta(criterion: &mut Criterion) {
    let contributions = contributions();
    let except = Except {
        members: &["tools", "nextCursor"],
        replaced: &[],
    };
    criterion.bench_function("merge members and _meta of 10 lists", |bencher| {
        bencher.iter(|| merge(black_box(&contributions), except, &[]));
    });
}

/// The entries of one list, as ranges.
fn walk_entries(criterion: &mut Criterion) {
    let tools = list(0).get("tools").unwrap_or_else(Json::null);
    let mut group = criterion.benchmark_group("a list of 50");
    group.throughput(Throughput::Elements(TOOLS as u64));
    group.bench_function("walk its entries", |bencher| {
        bencher.iter(|| black_box(&tools).elements().count());
    });
}

fn visible_names(criterion: &mut Criterion) {
    let namings = namings(&[("s0", None), ("s1", None)], &NamingPolicy::default());
    let names: Vec<_> = (0..TOOLS)
        .map(|index| Json::string(&format!("tool_{index:03}")))
        .collect();
    let Some(naming) = namings.first() else {
        return;
    };
    let mut group = criterion.benchmark_group("a list of 50");
    group.throughput(Throughput::Elements(TOOLS as u64));
    group.bench_function("names as clients see them", |bencher| {
        bencher.iter(|| {
            black_box(&names)
                .iter()
                .map(|name| naming.visible(name).bytes().len())
                .sum::<usize>()
        });
    });
}

fn union_of_capabilities(criterion: &mut Criterion) {
    let first = Json::literal(
        r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}}"#,
    );
    let second = Json::literal(
        r#"{"tools":{"listChanged":false},"prompts":{},"experimental":{"x":{"y":1}}}"#,
    );
    criterion.bench_function("union of capabilities", |bencher| {
        bencher.iter(|| union(black_box(&first), black_box(&second)));
    });
}

/// Makes and reads a cursor, as for one page of a merged list.
fn cursor_there_and_back(criterion: &mut Criterion) {
    let Ok(seal) = CursorSeal::new(&Keys::new([[7; 32]])) else {
        return;
    };
    let position = Position {
        list: 1,
        generation: 42,
        backend: "files".into(),
        offset: 17,
    };
    let anyone = Holder::new(Principal::anonymous(), Endpoint::Default);
    criterion.bench_function("seal and open a cursor", |bencher| {
        bencher.iter(|| {
            seal.seal(black_box(&position), &anyone)
                .and_then(|cursor| seal.open(&cursor, &anyone))
        });
    });
}
