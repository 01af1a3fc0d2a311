//! Rules of the repository that no linter checks.

use std::fs;
use std::path::{Path, PathBuf};

use harness::{pages, repository};

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_module_starts_with_a_module_comment() {
    let mut files = Vec::new();
    for dir in ["crates", "tests", "bench"] {
        rust_files(&repository().join(dir), &mut files);
    }
    assert!(files.len() > 50, "found only {files:?}");
    let bare: Vec<_> =
        files.iter().filter(|f| !fs::read_to_string(f).unwrap().trim_start().starts_with("//!")).collect();
    assert!(bare.is_empty(), "modules without a module comment (`//!`): {bare:#?}");
}

/// In the OpenAPI document, the type that is described last would silently replace the other.
#[test]
fn no_two_types_have_the_same_name_in_the_api() {
    let mut files = Vec::new();
    rust_files(&repository().join("crates"), &mut files);
    let mut types = std::collections::BTreeMap::<String, Vec<String>>::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // `ToSchema` in a derive, and the next item.
        for (at, _) in text.match_indices("ToSchema").filter(|(at, _)| is_in_a_derive(&text[..*at])) {
            let rest = &text[at..];
            let Some(item) =
                ["struct ", "enum "].iter().filter_map(|word| Some(rest.find(word)? + word.len())).min()
            else {
                continue;
            };
            let name = |text: &str| {
                text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
            };
            let renamed = rest[..item].split_once("as = ").map(|(_, rest)| name(rest));
            let shown = renamed.unwrap_or_else(|| name(&rest[item..]));
            // A macro names its types elsewhere.
            if !shown.is_empty() {
                types.entry(shown).or_default().push(file.display().to_string());
            }
        }
    }
    assert!(types.len() > 100, "found only {types:?}");
    types.retain(|_, files| files.len() > 1);
    assert!(types.is_empty(), "rename one of each with `#[schema(as = NAME)]`: {types:#?}");
}

fn is_in_a_derive(before: &str) -> bool {
    before.rfind("#[derive(").is_some_and(|at| !before[at..].contains(")]"))
}

/// Returns what both READMEs must have in common: headings by depth, code blocks, list items, links.
///
/// A link to a Chinese page of the book counts as one to its English page.
fn skeleton(text: &str) -> (Vec<usize>, Vec<String>, usize, Vec<String>) {
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    let code = text.split("```").skip(1).step_by(2).map(str::to_owned).collect();
    let headings = prose.iter().flat_map(|p| p.lines()).filter(|l| l.starts_with('#'));
    let headings = headings.map(|l| l.chars().take_while(|c| *c == '#').count()).collect();
    let items = prose.iter().flat_map(|p| p.lines()).filter(|l| l.starts_with("- ")).count();
    let links = prose.iter().flat_map(|p| targets(p)).filter(|t| !t.starts_with("README"));
    let mut links: Vec<_> = links.map(|t| t.replace(".zh-CN.md", ".md")).collect();
    links.sort();
    (headings, code, items, links)
}

#[test]
fn both_readmes_have_the_same_parts_commands_and_links() {
    let read = |name: &str| fs::read_to_string(repository().join(name)).unwrap();
    let (english, chinese) = (skeleton(&read("README.md")), skeleton(&read("README.zh-CN.md")));
    assert_eq!(english.0, chinese.0, "headings");
    assert_eq!(english.1, chinese.1, "code blocks");
    assert_eq!(english.2, chinese.2, "list items");
    assert_eq!(english.3, chinese.3, "links");
}

/// Returns the targets of all links in a Markdown text.
fn targets(text: &str) -> Vec<String> {
    text.match_indices("](")
        .filter_map(|(at, _)| text[at + 2..].split_once(')'))
        .map(|(t, _)| t.to_owned())
        .collect()
}

/// Converts a heading to an anchor, as mdBook and the usual hosts do.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn anchors(page: &Path) -> Vec<String> {
    fs::read_to_string(page).unwrap().lines().filter(|l| l.starts_with('#')).map(anchor).collect()
}

#[test]
fn every_link_within_the_repository_has_a_target() {
    let mut broken = Vec::new();
    let mut files = pages::markdown_files(&repository().join("docs"));
    files.extend(pages::markdown_files(&repository().join("examples")));
    files.extend(["README.md", "README.zh-CN.md", "CHANGELOG.md"].map(|f| repository().join(f)));
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        for target in targets(&prose).into_iter().filter(|t| !t.contains("://")) {
            let (path, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let page = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            let there =
                page.exists() && (fragment.is_empty() || anchors(&page).iter().any(|a| a == fragment));
            if !there {
                broken.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}

/// Returns the code spans of a line of Markdown.
fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Returns whether a code span is the path of a file or folder of the repository.
fn is_source_path(span: &str) -> bool {
    ["crates/", "tests/", "bench/", "scripts/", "examples/", "docs/"].iter().any(|dir| span.starts_with(dir))
}

#[test]
fn every_source_path_in_the_docs_exists() {
    let mut wrong = Vec::new();
    let mut files = pages::markdown_files(&repository().join("docs"));
    files.extend(["README.md", "README.zh-CN.md", "CHANGELOG.md"].map(|f| repository().join(f)));
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        for span in prose.lines().flat_map(code_spans).filter(|span| is_source_path(span)) {
            if !repository().join(span).exists() {
                wrong.push(format!("{}: {span}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "paths that do not exist: {wrong:#?}");
}

/// Returns whether a source file defines a function, a constant or a type with this name.
fn defines(source: &str, name: &str) -> bool {
    ["fn", "const", "struct", "enum"].iter().any(|kind| source.contains(&format!("{kind} {name}")))
}

/// A row of a table names a file, then functions, constants or types in this file.
#[test]
fn every_name_on_the_architecture_page_is_in_its_file() {
    let page = fs::read_to_string(repository().join("docs/src/architecture.md")).unwrap();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let mut source = None;
        for span in code_spans(line) {
            if is_source_path(span) {
                // `None` for a folder.
                source = fs::read_to_string(repository().join(span)).ok();
            } else if let Some(source) = &source {
                checked += 1;
                let name = span.rsplit("::").next().unwrap_or(span);
                if !defines(source, name) {
                    wrong.push(format!("{span}: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "names that are not in their file: {wrong:#?}");
    assert!(checked > 40, "found only {checked} names");
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let book = repository().join("docs/src");
    let summary = targets(&fs::read_to_string(book.join("SUMMARY.md")).unwrap());
    for page in pages::markdown_files(&book) {
        let name = page.strip_prefix(&book).unwrap().to_string_lossy().into_owned();
        assert!(name == "SUMMARY.md" || summary.contains(&name), "{name} is not in docs/src/SUMMARY.md");
    }
}

#[test]
fn ci_runs_the_command_of_the_readme_and_make_lists_every_target() {
    let read = |name: &str| fs::read_to_string(repository().join(name)).unwrap();
    let commands: Vec<_> =
        read(".ci/run").lines().filter_map(|l| l.strip_prefix("exec ").map(str::to_owned)).collect();
    assert_eq!(commands, ["make test </dev/null"]);
    assert!(read("README.md").contains("`make test`"));
    let makefile = read("Makefile");
    for target in ["run", "test", "lint", "fix", "bench", "chaos", "docs", "help"] {
        let line = makefile.lines().find(|l| l.starts_with(&format!("{target}:")));
        assert!(line.is_some_and(|l| l.contains(" ## ")), "`{target}` is missing or has no help text");
    }
}
