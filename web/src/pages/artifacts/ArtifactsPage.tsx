/** The artifacts page: files that jobs share. */

import { ActionIcon, Button, FileButton, TextInput, Tooltip } from "@mantine/core";
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Boxes, ChevronRight, Download, Search, Upload } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { unwrap, api, fetchRaw } from "../../api/client";
import type { Artifact } from "../../api/schema";
import { saveAs } from "../../lib/download";
import { formatBytes } from "../../lib/quantities";
import { usePageTitle } from "../../lib/title";
import { runAction } from "../../ui/notify";
import { Allowed } from "../../ui/Allowed";
import { CopyButton, EmptyState, Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import style from "./artifacts.module.css";

const route = getRouteApi("/artifacts");

export function ArtifactsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.artifacts"));
  const { name, namespace } = route.useSearch();
  const [find, setFind] = useState("");
  const list = useInfiniteQuery({
    queryKey: ["artifacts", name, namespace],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(api.GET("/api/v1/artifacts", { params: { query: { name, namespace, limit: 200, cursor } } })),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: 15_000,
  });
  const all = list.data?.pages.flatMap((page) => page.items) ?? [];
  const matching = all.filter((each) => each.name.toLowerCase().includes(find.toLowerCase()));

  return (
    <Page
      title={
        name ? (
          <div className={style.crumbs}>
            <Link to="/artifacts" className="quiet">
              {t("nav.artifacts")}
            </Link>
            <ChevronRight size={14} className="quiet" aria-hidden />
            <h1 className="clip">{name}</h1>
          </div>
        ) : (
          t("nav.artifacts")
        )
      }
      actions={
        <Allowed verb="create" on="artifacts" in={namespace ?? "default"}>
          <UploadButton name={name} namespace={namespace} />
        </Allowed>
      }
    >
      {!name && all.length > 0 && (
        <TextInput
          leftSection={<Search size={13} />}
          placeholder={t("artifact.find")}
          aria-label={t("artifact.find")}
          value={find}
          onChange={(event) => setFind(event.currentTarget.value)}
          maw={320}
        />
      )}
      {list.error && <ErrorBox error={list.error} onRetry={() => void list.refetch()} />}
      {list.isPending && <Loading />}
      {list.isSuccess && all.length === 0 && (
        <EmptyState icon={Boxes} title={t("artifact.none")}>
          <p>{t("artifact.noneText")}</p>
          <br />
          <Snippet text="belfry submit --store out.csv=report -- sh -c 'echo a,b > out.csv'" />
        </EmptyState>
      )}
      {matching.length > 0 && (
        <div className={style.table} role="table" aria-label={t("nav.artifacts")}>
          <div className={`${style.row} ${style.head}`} role="row">
            {(["name", "namespace", "hash", "size", "stored", "by", "download"] as const).map((column) => (
              <span role="columnheader" key={column}>
                {column === "download" ? (
                  <span className={style.hidden}>{t("artifact.download")}</span>
                ) : (
                  t(`artifact.${column}`)
                )}
              </span>
            ))}
          </div>
          {matching.map((artifact) => (
            <ArtifactRow
              key={`${artifact.namespace}/${artifact.name}@${artifact.sha256}`}
              artifact={artifact}
            />
          ))}
        </div>
      )}
      {list.hasNextPage && (
        <Button variant="default" loading={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          {t("common.more")}
        </Button>
      )}
    </Page>
  );
}

function ArtifactRow({ artifact }: { artifact: Artifact }) {
  const { t } = useTranslation();
  const { name, namespace, sha256 } = artifact;
  const download = () =>
    runAction(async () => {
      const query = new URLSearchParams({ namespace, version: sha256 });
      const response = await fetchRaw(`/api/v1/artifacts/${encodeURIComponent(name)}?${query}`);
      saveAs(await response.blob(), name);
    });
  return (
    <div className={style.row} role="row">
      <span role="cell" className={style.name}>
        <Link to="/artifacts" search={{ name, namespace }}>
          {name}
        </Link>
      </span>
      <span role="cell" className="quiet clip">
        {namespace}
      </span>
      <span role="cell" className={style.hash}>
        <code>{sha256.slice(0, 12)}</code>
        <CopyButton text={`${name}@sha256:${sha256}`} label={t("artifact.copyReference")} />
      </span>
      <span role="cell" className="num">
        {formatBytes(artifact.size_bytes)}
      </span>
      <span role="cell">
        <RelativeTime at={artifact.created_at} />
      </span>
      <span role="cell" className="clip quiet">
        <CreatedBy by={artifact.created_by} />
      </span>
      <span role="cell">
        <Tooltip label={t("artifact.download")}>
          <ActionIcon aria-label={t("artifact.downloadOf", { name })} onClick={() => void download()}>
            <Download size={14} />
          </ActionIcon>
        </Tooltip>
      </span>
    </div>
  );
}

/** The creator of an artifact: a user, or an execution with a link. */
function CreatedBy({ by }: { by: string }) {
  if (!by.startsWith("exe_")) return by;
  return (
    <Link to="/executions/$id" params={{ id: by }} className="mono">
      …{by.slice(-8)}
    </Link>
  );
}

function UploadButton({ name, namespace }: { name?: string; namespace?: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [busy, setBusy] = useState(false);
  const upload = async (file: File | null) => {
    if (!file) return;
    setBusy(true);
    const target = name ?? file.name;
    await runAction(
      async () => {
        const query = new URLSearchParams(namespace ? { namespace } : {});
        const headers = { "content-type": "application/octet-stream" };
        await fetchRaw(`/api/v1/artifacts/${encodeURIComponent(target)}?${query}`, {
          method: "PUT",
          body: file,
          headers,
        });
        await client.invalidateQueries({ queryKey: ["artifacts"] });
      },
      t("artifact.uploaded", { name: target }),
    );
    setBusy(false);
  };
  return (
    <FileButton onChange={(file) => void upload(file)}>
      {(props) => (
        <Button variant="default" leftSection={<Upload size={13} />} loading={busy} {...props}>
          {name ? t("artifact.uploadVersion") : t("artifact.upload")}
        </Button>
      )}
    </FileButton>
  );
}
