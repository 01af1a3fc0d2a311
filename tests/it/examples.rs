//! Every example runs, and every command of the README and the book works as written.

use std::fs;
use std::path::{Path, PathBuf};

use harness::{Site, pages, repository};

/// Returns the files of `examples/` with this extension.
fn examples(ending: &str) -> Vec<PathBuf> {
    let entries = repository().join("examples").read_dir().unwrap().flatten().map(|e| e.path());
    let mut found: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == ending)).collect();
    found.sort();
    assert!(found.len() >= 3, "{found:?}");
    found
}

#[tokio::test]
async fn every_job_file_of_the_examples_succeeds() {
    let site = Site::start().await;
    for file in examples("yaml") {
        site.belfry(&["submit", "--wait", "-f", file.to_str().unwrap()]).await.success();
    }
}

/// F2.
#[tokio::test]
async fn the_runtimes_of_the_examples_are_valid() {
    let site = Site::start().await;
    for file in ["container.yaml", "http.yaml", "sandbox.yaml"] {
        let file = repository().join("examples/runtimes").join(file);
        site.belfry(&["submit", "--dry-run", "-f", file.to_str().unwrap()]).await.success();
    }
}

/// Returns the definition files in a folder of `examples/`.
fn definitions(folder: &str) -> Vec<PathBuf> {
    let entries = repository().join("examples").join(folder).read_dir().unwrap().flatten().map(|e| e.path());
    let mut found: Vec<_> = entries.collect();
    found.sort();
    assert!(found.len() >= 5, "{found:?}");
    found
}

/// B1, B5, C1. Each file is applied, and then has no difference left.
#[tokio::test]
async fn every_schedule_and_workflow_of_the_examples_is_applied() {
    let site = Site::start().await;
    for file in definitions("schedules").iter().chain(&definitions("workflows")) {
        let file = file.to_str().unwrap();
        site.belfry(&["apply", "-f", file]).await.success();
        site.belfry(&["diff", "-f", file]).await.success();
    }
    site.belfry(&["schedule", "trigger", "deploy", "--wait"]).await.success();
    site.belfry(&["schedule", "next", "office-hours"]).await.success();
}

/// H3.
#[tokio::test]
async fn the_alerts_of_the_examples_are_applied() {
    let site = Site::start().await;
    let folder = repository().join("examples/alerts");
    let folder = folder.to_str().unwrap();
    site.belfry(&["apply", "-f", folder]).await.success();
    site.belfry(&["diff", "-f", folder]).await.success();
}

/// H2.
#[tokio::test]
async fn the_secret_of_the_examples_is_used_by_its_job() {
    let site = Site::start().await;
    let folder = repository().join("examples/secrets");
    let script = format!(
        "echo certificate > ca.pem; DB_PASSWORD=correct-horse belfry apply -f {0}/secret.yaml
         belfry submit --wait -f {0}/job.yaml && belfry logs @last",
        folder.display()
    );
    let log = site.script(&site.path(""), &script).await.success();
    assert!(log.contains("with the password ******") && !log.contains("correct-horse"), "{log}");
}

/// F3.
#[tokio::test]
async fn the_services_of_the_examples_become_available() {
    let site = Site::start().await;
    let folder = repository().join("examples/services");
    let folder = folder.to_str().unwrap();
    site.belfry(&["apply", "-f", folder]).await.success();
    site.belfry(&["service", "rollout", "status", "web", "--watch"]).await.success();
    site.belfry(&["diff", "-f", folder]).await.success();
    site.belfry(&["service", "delete", "web", "--wait"]).await.success();
}

#[tokio::test]
async fn every_script_of_the_examples_succeeds() {
    let site = Site::start().await;
    for file in examples("sh") {
        site.script(&repository().join("examples"), &format!("exec '{}'", file.display())).await.success();
    }
}

#[test]
fn the_list_of_examples_is_complete() {
    let list = fs::read_to_string(repository().join("examples/README.md")).unwrap();
    for file in examples("yaml").into_iter().chain(examples("sh")) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(list.contains(&format!("[{name}]({name})")), "{name} is not in examples/README.md");
    }
    for folder in ["schedules", "workflows"] {
        for file in definitions(folder) {
            let name = format!("{folder}/{}", file.file_name().unwrap().to_string_lossy());
            assert!(list.contains(&format!("[{name}]({name})")), "{name} is not in examples/README.md");
        }
    }
}

/// Runs the marked commands of a page, in order, in a folder that contains `examples/`.
async fn run_page(site: &Site, page: &Path) -> usize {
    let blocks = pages::tested_blocks(&fs::read_to_string(page).unwrap());
    let name = page.strip_prefix(repository()).unwrap();
    let folder = site.path(&name.to_string_lossy());
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(repository().join("examples"), folder.join("examples")).unwrap();
    for block in &blocks {
        site.script(&folder, block).await.success();
    }
    blocks.len()
}

#[tokio::test]
async fn the_commands_of_both_readmes_work_as_they_are_written() {
    // Both have the same commands, and some commands (such as the creation of an account) succeed once on a server.
    let run = async |page: &str| {
        let site = Site::start().await;
        assert!(run_page(&site, &repository().join(page)).await >= 4);
    };
    tokio::join!(run("README.md"), run("README.zh-CN.md"));
}

#[tokio::test]
async fn the_commands_of_the_book_work_as_they_are_written() {
    let site = Site::start().await;
    let mut ran = 0;
    for page in pages::markdown_files(&repository().join("docs/src")) {
        ran += run_page(&site, &page).await;
    }
    assert!(ran >= 5, "only {ran} blocks are marked");
}
