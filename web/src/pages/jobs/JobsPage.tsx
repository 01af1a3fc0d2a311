/** All jobs: filtered, live, and acted on many at a time. */

import { ActionIcon, Button, Group, Modal, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Ban, Bookmark, ListChecks, Plus, RotateCcw, SearchX, Trash2, X } from "lucide-react";
import { useCallback, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { countsQuery } from "../../api/queries";
import type { JobStatus } from "../../api/schema";
import type { JobsSearch } from "../../app/router";
import { isSame, tokensOf, withToken } from "../../lib/filters";
import { useSlash } from "../../lib/slash";
import { usePageTitle } from "../../lib/title";
import { Empty, Loading, Page, ProblemBox, Snippet } from "../../ui/kit";
import { type BulkAction, isFit } from "./bulk";
import { BulkDialog, type Target } from "./BulkDialog";
import { FilterBar } from "./FilterBar";
import style from "./jobs.module.css";
import { JobTable } from "./JobTable";
import { useJobs } from "./useJobs";
import { forgetView, saveView, useViews } from "./views";

const route = getRouteApi("/jobs");

const BUILT_IN = [
  { key: "all", search: {} },
  { key: "active", search: { status: "ready,waiting,running,retrying" } },
  { key: "failed", search: { status: "failed,expired" } },
  { key: "succeeded", search: { status: "succeeded" } },
] as const;

export function JobsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.jobs"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { rows, loading, refusal, more, refresh, query } = useJobs(search);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [bulk, setBulk] = useState<{ action: BulkAction; target: Target } | null>(null);
  const input = useRef<HTMLInputElement>(null);

  const change = useCallback(
    (next: JobsSearch) => {
      setSelected(new Set());
      void navigate({ search: next });
    },
    [navigate],
  );

  useSlash(input);

  const isFiltered = tokensOf(search).length > 0;
  const isEmpty = !loading && !refusal && rows.items.length === 0;
  return (
    <Page title={t("nav.jobs")} fill>
      <Views search={search} onChange={change} />
      <FilterBar search={search} onChange={change} inputRef={input} />
      {refusal && <ProblemBox error={refusal} onRetry={refresh} />}
      {loading && rows.items.length === 0 && <Loading rows={10} />}
      {isEmpty && (isFiltered ? <NothingMatches onClear={() => change({})} /> : <NoJobs />)}
      {rows.items.length > 0 && (
        <>
          <BulkBar
            jobs={rows.items}
            selected={selected}
            hasMore={Boolean(rows.cursor)}
            onClear={() => setSelected(new Set())}
            onBulk={(action, all) => {
              const fit = rows.items.filter((job) => selected.has(job.id) && isFit(action, job));
              setBulk({ action, target: all ? { query } : { ids: fit.map((job) => job.id) } });
            }}
          />
          <JobTable
            jobs={rows.items}
            selected={selected}
            onSelect={setSelected}
            onPickLabel={(label) => change(withToken(search, { key: "label", value: label }))}
            onEnd={more}
            hasMore={Boolean(rows.cursor)}
          />
        </>
      )}
      {bulk && (
        <BulkDialog
          {...bulk}
          onClose={() => setBulk(null)}
          onDone={() => {
            setBulk(null);
            setSelected(new Set());
          }}
        />
      )}
    </Page>
  );
}

function Views({ search, onChange }: { search: JobsSearch; onChange: (search: JobsSearch) => void }) {
  const { t } = useTranslation();
  const saved = useViews();
  const counts = useQuery(countsQuery).data;
  const [naming, setNaming] = useState(false);
  const count = (status?: string) => {
    if (!counts) return null;
    const wanted = (status?.split(",") ?? Object.keys(counts)) as JobStatus[];
    return wanted.reduce((sum, each) => sum + counts[each], 0);
  };
  const known = [...BUILT_IN.map((view) => view.search as JobsSearch), ...saved.map((view) => view.search)];
  const isNew = tokensOf(search).length > 0 && !known.some((each) => isSame(each, search));
  return (
    <div className={style.views} role="group" aria-label={t("jobs.views")}>
      {BUILT_IN.map((view) => (
        <button
          key={view.key}
          type="button"
          className={style.view}
          aria-pressed={isSame(view.search, search)}
          onClick={() => onChange(view.search)}
        >
          {t(`jobs.view.${view.key}`)}
          <span className={`${style.viewCount} num`}>
            {count("status" in view.search ? view.search.status : undefined)?.toLocaleString()}
          </span>
        </button>
      ))}
      {saved.map((view) => (
        <span key={view.name} className={style.savedView}>
          <button
            type="button"
            className={style.view}
            aria-pressed={isSame(view.search, search)}
            onClick={() => onChange(view.search)}
          >
            <Bookmark size={12} aria-hidden />
            {view.name}
          </button>
          {isSame(view.search, search) && (
            <ActionIcon
              size={20}
              aria-label={t("jobs.forgetView", { name: view.name })}
              onClick={() => forgetView(view.name)}
            >
              <Trash2 size={12} />
            </ActionIcon>
          )}
        </span>
      ))}
      {isNew && (
        <button type="button" className={`${style.view} ${style.saveView}`} onClick={() => setNaming(true)}>
          <Bookmark size={12} aria-hidden />
          {t("jobs.saveView")}
        </button>
      )}
      {naming && <NameView search={search} onClose={() => setNaming(false)} />}
    </div>
  );
}

function NameView({ search, onClose }: { search: JobsSearch; onClose: () => void }) {
  const { t } = useTranslation();
  const [name, setName] = useState("");
  return (
    <Modal opened onClose={onClose} title={t("jobs.saveView")} size={360}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          saveView({ name: name.trim(), search });
          onClose();
        }}
      >
        <TextInput
          label={t("jobs.viewName")}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          maxLength={40}
          data-autofocus
        />
        <Group justify="flex-end" mt="md">
          <Button type="submit" disabled={name.trim() === ""}>
            {t("common.save")}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

interface BulkBarProps {
  jobs: ReturnType<typeof useJobs>["rows"]["items"];
  selected: ReadonlySet<string>;
  hasMore: boolean;
  onClear: () => void;
  onBulk: (action: BulkAction, all: boolean) => void;
}

function BulkBar({ jobs, selected, hasMore, onClear, onBulk }: BulkBarProps) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const fit = useMemo(() => {
    const chosen = jobs.filter((job) => selected.has(job.id));
    const count = (action: BulkAction) => chosen.filter((job) => isFit(action, job)).length;
    return { cancel: count("cancel"), retry: count("retry") };
  }, [jobs, selected]);
  if (selected.size === 0) return null;
  const everything = selected.size === jobs.length && hasMore;
  const isAll = all && everything;
  return (
    <div className={style.bulk} role="toolbar" aria-label={t("bulk.label")}>
      <strong className="num">
        {isAll ? t("bulk.allMatching") : t("bulk.selected", { count: selected.size })}
      </strong>
      {everything && !all && (
        <button type="button" className={style.bulkAll} onClick={() => setAll(true)}>
          {t("bulk.chooseAll")}
        </button>
      )}
      <Button
        variant="default"
        leftSection={<Ban size={13} />}
        disabled={!isAll && fit.cancel === 0}
        onClick={() => onBulk("cancel", isAll)}
      >
        {isAll ? t("job.cancel") : t("bulk.cancelSome", { count: fit.cancel })}
      </Button>
      <Button
        variant="default"
        leftSection={<RotateCcw size={13} />}
        disabled={!isAll && fit.retry === 0}
        onClick={() => onBulk("retry", isAll)}
      >
        {isAll ? t("job.retry") : t("bulk.retrySome", { count: fit.retry })}
      </Button>
      <ActionIcon onClick={onClear} aria-label={t("bulk.clear")}>
        <X size={15} />
      </ActionIcon>
    </div>
  );
}

function NothingMatches({ onClear }: { onClear: () => void }) {
  const { t } = useTranslation();
  return (
    <Empty
      icon={SearchX}
      title={t("jobs.nothingMatches")}
      action={
        <Button variant="default" onClick={onClear}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}

function NoJobs() {
  const { t } = useTranslation();
  return (
    <Empty
      icon={ListChecks}
      title={t("jobs.none")}
      action={
        <Button component={Link} to="/submit" leftSection={<Plus size={14} />}>
          {t("nav.submit")}
        </Button>
      }
    >
      <p>{t("jobs.noneText")}</p>
      <br />
      <Snippet text="belfry submit --follow -- echo 'hello from Belfry'" />
    </Empty>
  );
}
