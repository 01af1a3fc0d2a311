/** The views of a list: built-in views, saved views, and a button that saves the current one. */

import { ActionIcon, Button, Group, Modal, TextInput } from "@mantine/core";
import { Bookmark, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { useViews, type ViewStore } from "../lib/savedViews";
import style from "./views.module.css";

export interface BuiltInView<Search> {
  label: string;
  search: Search;
  /** Number of its rows; null while unknown. */
  count?: number | null;
}

interface Props<Search> {
  builtIn: ReadonlyArray<BuiltInView<Search>>;
  views: ViewStore<Search>;
  search: Search;
  /** Returns whether two filters show the same rows. */
  isSame: (a: Search, b: Search) => boolean;
  onChange: (search: Search) => void;
}

export function ViewBar<Search>({ builtIn, views, search, isSame, onChange }: Props<Search>) {
  const { t } = useTranslation();
  const saved = useViews(views);
  const [naming, setNaming] = useState(false);
  const isKnown = [...builtIn, ...saved].some((view) => isSame(view.search, search));
  return (
    <div className={style.views} role="group" aria-label={t("views.label")}>
      {builtIn.map((view) => (
        <button
          key={view.label}
          type="button"
          className={style.view}
          aria-pressed={isSame(view.search, search)}
          onClick={() => onChange(view.search)}
        >
          {view.label}
          {view.count != null && <span className={`${style.count} num`}>{view.count.toLocaleString()}</span>}
        </button>
      ))}
      {saved.map((view) => (
        <span key={view.name} className={style.saved}>
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
              aria-label={t("views.delete", { name: view.name })}
              onClick={() => views.remove(view.name)}
            >
              <Trash2 size={12} />
            </ActionIcon>
          )}
        </span>
      ))}
      {!isKnown && (
        <button type="button" className={`${style.view} ${style.save}`} onClick={() => setNaming(true)}>
          <Bookmark size={12} aria-hidden />
          {t("views.save")}
        </button>
      )}
      {naming && (
        <NameDialog onName={(name) => views.save({ name, search })} onClose={() => setNaming(false)} />
      )}
    </div>
  );
}

function NameDialog({ onName, onClose }: { onName: (name: string) => void; onClose: () => void }) {
  const { t } = useTranslation();
  const [name, setName] = useState("");
  return (
    <Modal opened onClose={onClose} title={t("views.save")} size={360}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onName(name.trim());
          onClose();
        }}
      >
        <TextInput
          label={t("views.name")}
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
