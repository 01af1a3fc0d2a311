//! Language rules for all texts that people read: words of the glossary, and short sentences.

use std::fs;
use std::path::{Path, PathBuf};

use harness::language::{Finding, long_sentences, replaced_words};
use harness::repository;
use model::api::Code;

/// Returns all English pages of the book, and the pages for developers and users beside it.
fn pages() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                collect(&path, found);
            } else if name.ends_with(".md") && !name.contains("zh-CN") {
                found.push(path);
            }
        }
    }
    let mut found: Vec<_> =
        ["README.md", "CHANGELOG.md", "web/README.md"].iter().map(|page| repository().join(page)).collect();
    collect(&repository().join("docs/src"), &mut found);
    found.sort();
    found
}

fn named(name: impl std::fmt::Display, findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| format!("{name}:{finding}")).collect()
}

#[track_caller]
fn assert_plain(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} texts violate the language rules:\n{}", wrong.len(), wrong.join("\n"));
}

fn check_pages(check: impl Fn(&str) -> Vec<Finding>) -> Vec<String> {
    let shown = |page: &Path| page.strip_prefix(repository()).unwrap().display().to_string();
    pages().iter().flat_map(|page| named(shown(page), check(&fs::read_to_string(page).unwrap()))).collect()
}

#[test]
fn the_book_uses_the_words_of_its_glossary() {
    assert_plain(check_pages(replaced_words));
}

#[test]
fn no_sentence_of_the_book_is_too_long() {
    assert_plain(check_pages(long_sentences));
}

#[test]
fn help_texts_use_the_words_of_the_glossary() {
    let path = "crates/belfry/src/snapshots/belfry__tests__the_help_of_every_command.snap";
    assert_plain(named(path, replaced_words(&fs::read_to_string(repository().join(path)).unwrap())));
}

/// Returns the comments of a source file, at their lines; all other lines are empty.
fn comments(source: &str) -> String {
    let comment = |line: &str| {
        let starts = ["//", "/*", "* ", "# "].iter().filter_map(|mark| {
            let at = line.find(mark)?;
            (line[..at].trim().is_empty() || line[..at].ends_with(' ') && mark.len() == 2).then_some(at)
        });
        starts.min().map_or_else(String::new, |at| line[at..].to_owned())
    };
    source.lines().map(|line| comment(line) + "\n").collect()
}

#[test]
fn comments_use_the_words_of_the_glossary() {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(&*name, "node_modules" | "dist" | "target") {
                    collect(&path, found);
                }
            } else if matches!(
                path.extension().and_then(|e| e.to_str()),
                Some("rs" | "ts" | "tsx" | "proto" | "sh")
            ) {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for folder in ["crates", "tests", "bench", "scripts", "web/src", "web/e2e"] {
        collect(&repository().join(folder), &mut files);
    }
    assert!(files.len() > 500, "found only {} files", files.len());
    // The table of the words themselves.
    files.retain(|file| !file.ends_with("tests/src/language.rs"));
    let shown = |file: &Path| file.strip_prefix(repository()).unwrap().display().to_string();
    let findings =
        |file: &PathBuf| named(shown(file), replaced_words(&comments(&fs::read_to_string(file).unwrap())));
    assert_plain(files.iter().flat_map(findings).collect());
}

#[test]
fn error_codes_use_the_words_of_the_glossary() {
    let texts = |code: &Code| format!("{}\n{}", code.title(), code.hint());
    assert_plain(
        Code::ALL.iter().flat_map(|code| named(code.as_str(), replaced_words(&texts(code)))).collect(),
    );
}

/// Collects the descriptions of the API, each with its path.
fn descriptions(value: &serde_json::Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    serde_json::Value::String(text) if key == "description" || key == "summary" => {
                        found.push((path.to_owned(), text.clone()));
                    }
                    value => descriptions(value, &format!("{path}/{key}"), found),
                }
            }
        }
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| descriptions(item, &format!("{path}/{i}"), found));
        }
        _ => {}
    }
}

#[test]
fn the_api_uses_the_words_of_the_glossary() {
    let document = fs::read_to_string(repository().join("docs/openapi.json")).unwrap();
    let mut found = Vec::new();
    descriptions(&serde_json::from_str(&document).unwrap(), "openapi.json#", &mut found);
    assert!(found.len() > 1_000);
    assert_plain(found.into_iter().flat_map(|(path, text)| named(path, replaced_words(&text))).collect());
}
