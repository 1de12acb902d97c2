//! Checks the blocks of each page in order: configurations are valid, commands run.

use std::fs;

use futures_util::StreamExt as _;
use serde_json::json;

use crate::api::Description;
use crate::block::{Block, Check, SERVERS};
use crate::page::{Page, root};
use crate::shell::Reader;

/// The number of pages that are followed at the same time.
const AT_ONCE: usize = 4;

/// The faults of a page's blocks for a reader who follows it from its top.
async fn follow(page: &Page) -> Vec<String> {
    let mut reader = Reader::new();
    let mut wrong = Vec::new();
    for block in page.blocks() {
        if let Err(problem) = follow_block(&mut reader, page, &block).await {
            wrong.push(format!("{} ({}): {problem}", block.place, block.language));
        }
    }
    for (line, command) in page.commands() {
        if let Err(problem) = reader.parse(&command).await {
            wrong.push(format!("{}:{line}: {problem}", page.path.display()));
        }
    }
    wrong
}

async fn follow_block(reader: &mut Reader, page: &Page, block: &Block) -> Result<(), String> {
    let text = &block.text;
    match block.check.as_ref().map_err(Clone::clone)? {
        Check::Shown => Ok(()),
        Check::Config { name } => {
            let has_servers = block.language != "yaml"
                || text.lines().any(|line| line.starts_with("mcpServers:"));
            reader.write(
                name,
                &if has_servers {
                    text.clone()
                } else {
                    format!("{text}{SERVERS}")
                },
            );
            reader.validate(name).await
        }
        Check::File { name } => {
            reader.write(name, text);
            Ok(())
        }
        Check::Run { status } => reader.run(text, *status).await,
        Check::Serve => reader.serve(text).await,
        Check::Needs => reader.parse(text).await,
        Check::Tested { path } => is_tested(page, path),
        Check::Answer { schema } => is_answer(text, schema.as_deref()),
    }
}

/// Checks that the program, or a file beside it, names the page.
fn is_tested(page: &Page, path: &str) -> Result<(), String> {
    let program = root().join(path);
    let name = page.path.to_string_lossy();
    let folder = program.parent().unwrap();
    let beside = [folder.to_owned(), folder.join("lib")]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let files = beside.map(|entry| entry.unwrap().path());
    let mut texts = files.filter_map(|file| fs::read_to_string(file).ok());
    match program.is_file() && texts.any(|text| text.contains(name.as_ref())) {
        true => Ok(()),
        false => Err(format!("{path} is not there, or does not name the page")),
    }
}

/// Checks that the text is JSON and has this schema.
fn is_answer(text: &str, schema: Option<&str>) -> Result<(), String> {
    let answer = serde_json::from_str(text).map_err(|error| error.to_string())?;
    schema.map_or(Ok(()), |schema| {
        Description::read().check(
            &json!({"$ref": format!("#/components/schemas/{schema}")}),
            &answer,
        )
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_of_every_page_work() {
    let pages = Page::all();
    let wrong: Vec<Vec<String>> = futures_util::stream::iter(&pages)
        .map(follow)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let wrong = wrong.concat();
    assert!(
        wrong.is_empty(),
        "{} blocks:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Tests the check itself: it finds each of these wrong blocks.
#[tokio::test]
async fn wrong_examples_are_found() {
    let fence = "```";
    let block = |info: &str, text: &str| format!("{fence}{info}\n{text}\n{fence}\n\n");
    let right = [
        block(
            "sh run",
            "fanlight list tools --json | grep -q library__search_books",
        ),
        block("yaml config", "mcpServers: {a: {command: a}}"),
        block("yaml config=other.yaml", "listen: 127.0.0.1:8080"),
        block(
            "sh needs=docker",
            "docker run x\nfanlight run --config fanlight.yaml",
        ),
        block("sh serve", "fanlight --config fanlight.yaml"),
        block("text", "a drawing"),
        "Run `fanlight list tools`, or `fanlight keys new NAME`.\n".to_owned(),
    ];
    let wrong = [
        block("", "fanlight list"),
        block("sh", "fanlight list"),
        block("yaml config", "mcpServers: {a: {comand: a}}"),
        block("sh run", "fanlight list --jsno"),
        block("sh run", "fanlight call library__no_such_tool"),
        block(
            "sh needs=docker",
            "docker run x\nfanlight run --confg fanlight.yaml",
        ),
        block("sh serve", "fanlight run --listen nowhere"),
        block("sh tested=tests/nothing/run", "fanlight"),
        block("json answer", "{\"a\": }"),
        block("json answer=Error", "{\"a\": \"b\"}"),
        "    fanlight list\n".to_owned(),
        "Run `fanlight lst`.\n".to_owned(),
    ];
    let found = follow(&Page::parse("right.md", &right.concat())).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
    let found = follow(&Page::parse("wrong.md", &wrong.concat())).await;
    assert_eq!(found.len(), wrong.len(), "{}", found.join("\n"));
}
