//! Nodes on real files and in real time. No test here depends on short times.

use super::*;
use crate::log::Failure;

fn options(folder: &Path, id: u64, start: Start) -> Options {
    Options {
        on_failure: OnFailure::call(|failure| eprintln!("{failure}: {}", failure.source)),
        segment_bytes: 64 * 1024,
        ..Options::new(folder.join(id.to_string()), CLUSTER, NodeId(id), Peer::default(), start)
    }
}

async fn open(mesh: &Mesh, options: Options, machine: &Memory) -> Node<Memory> {
    let id = options.node;
    let node = Node::open(options, machine.clone(), mesh.transport(id)).await.unwrap();
    let serving = node.clone();
    mesh.listen(id, move |stream, from| {
        let node = serving.clone();
        tokio::spawn(async move { node.serve_peer(stream, from).await });
    });
    node
}

#[tokio::test]
async fn nodes_on_files_keep_what_was_acknowledged() {
    let (folder, mesh) = (tempfile::tempdir().unwrap(), Mesh::new());
    let machines = [Memory::default(), Memory::default()];
    let first = open(&mesh, options(folder.path(), 1, Start::Bootstrap), &machines[0]).await;
    let second = open(&mesh, options(folder.path(), 2, Start::Join), &machines[1]).await;
    within("the first node leads", first.leadership().wait_for(|leader| leader == first.id())).await;
    first.propose(b"alone".to_vec()).await.unwrap();
    within("a learner is added", first.add_learner(second.id(), Peer::default())).await.unwrap();
    within("the learner votes", first.promote(second.id())).await.unwrap();
    let write = async {
        while first.forward(b"together".to_vec()).await.is_err() {}
        second.read().await
    };
    within("both have applied it", write).await.unwrap();
    let expected = applied(second.machine());
    assert_eq!(expected[..2], [&b"alone"[..], b"together"]);
    first.shutdown().await;
    second.shutdown().await;
    // The machines forget everything; the logs do not.
    machines.iter().for_each(Memory::cut_power);
    let first = open(&mesh, options(folder.path(), 1, Start::Existing), &machines[0]).await;
    let second = open(&mesh, options(folder.path(), 2, Start::Existing), &machines[1]).await;
    for node in [&first, &second] {
        within("the node reads", async { while node.read().await.is_err() {} }).await;
        assert_eq!(applied(node.machine())[..expected.len()], expected);
    }
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test]
async fn a_failure_of_the_machine_is_reported() {
    let (folder, mesh, machine) = (tempfile::tempdir().unwrap(), Mesh::new(), Memory::default());
    let (sender, reported) = watch::channel(String::new());
    let report = move |failure: &Failure| {
        sender.send_replace(failure.source.to_string());
    };
    let options =
        Options { on_failure: OnFailure::call(report), ..options(folder.path(), 1, Start::Bootstrap) };
    machine.fail("the disk has failed");
    let node = Node::open(options, machine, mesh.transport(NodeId(1))).await;
    let mut reported = reported;
    within("the failure is reported", reported.wait_for(|text| text == "the disk has failed")).await.unwrap();
    if let Ok(node) = node {
        assert_eq!(node.propose(b"late".to_vec()).await, Err(ProposeError::Stopped));
    }
}
