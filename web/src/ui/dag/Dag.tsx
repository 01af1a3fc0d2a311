/**
 * The graph of a workflow: its steps, their dependencies and their statuses.
 *
 * It is panned by dragging and zoomed by the wheel (with Ctrl, or while it has the focus), by the keys `+`, `-` and
 * `0`, and by its buttons. Arrow keys select steps. Only visible steps are DOM elements. When they are too small to
 * read, they are drawn as a few paths, so that thousands cost as little as ten.
 */

import { ActionIcon, TextInput, Tooltip } from "@mantine/core";
import { LoaderCircle, Maximize, Minus, Plus, Search } from "lucide-react";
import {
  type KeyboardEvent,
  type PointerEvent,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { useTranslation } from "react-i18next";

import { type DagNode, relatedSteps } from "../../lib/dag/graph";
import { curvePath, type Layout, NODE_HEIGHT, NODE_WIDTH } from "../../lib/dag/layout";
import { useLayout } from "../../lib/dag/useLayout";
import { stepTone } from "../../lib/runs";
import { Node, type NodeState } from "./Node";
import style from "./dag.module.css";
import {
  initialView,
  centerView,
  isEdgeVisible,
  fitView,
  isNodeVisible,
  neighbour,
  type Size,
  stepAt,
  type View,
  viewportOf,
  zoomView,
} from "./view";

/** Minimum scale at which names are readable. */
const READABLE_SCALE = 0.42;
/** Up to this number of steps are DOM elements at any scale. */
const DETAILED_STEPS_MAX = 60;
/** Maximum pointer movement of a click. */
const CLICK_PX = 4;

interface Props {
  nodes: readonly DagNode[];
  /** Status of each step; undefined for the graph of a definition. */
  states?: ReadonlyMap<string, NodeState>;
  selected?: string;
  /** The step to show and to start from while no step is selected. */
  focus?: string;
  onSelect?: (name: string | undefined) => void;
  label: string;
}

export function Dag({ nodes, states, selected, focus, onSelect, label }: Props) {
  const { t } = useTranslation();
  const { layout, layoutKey, isBusy } = useLayout(nodes);
  const box = useRef<HTMLDivElement>(null);
  const size = useSize(box);
  const [view, setView] = useView(layout, layoutKey, size, selected ?? focus);
  const [find, setFind] = useState("");
  const drag = useRef<{ x: number; y: number; view: View; moved: boolean } | null>(null);

  const hits = useMemo(() => {
    const text = find.trim().toLowerCase();
    if (text === "") return null;
    return new Set(nodes.filter(({ name }) => name.toLowerCase().includes(text)).map(({ name }) => name));
  }, [nodes, find]);
  const related = useMemo(() => (selected ? relatedSteps(nodes, selected) : null), [nodes, selected]);

  const zoom = useCallback(
    (factor: number, at?: { x: number; y: number }) =>
      setView((view) => zoomView(view, factor, at ?? { x: size.width / 2, y: size.height / 2 })),
    [size, setView],
  );
  const fit = () => setView(() => fitView(layout, size));
  const show = (name: string | undefined) => {
    const point = name === undefined ? undefined : layout.positions.get(name);
    if (point) setView((view) => centerView(view, point, size));
  };

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => {
      // Scrolling the page across the graph must not zoom it.
      if (!event.ctrlKey && !element.contains(document.activeElement)) return;
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      const at = { x: event.clientX - left, y: event.clientY - top };
      zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.008 : 0.0016)), at);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [zoom]);

  const onPointerDown = (event: PointerEvent<HTMLDivElement>) => {
    if (event.button !== 0) return;
    drag.current = { x: event.clientX, y: event.clientY, view, moved: false };
  };
  const onPointerMove = (event: PointerEvent<HTMLDivElement>) => {
    const from = drag.current;
    if (!from) return;
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    if (!from.moved && Math.hypot(dx, dy) < CLICK_PX) return;
    if (!from.moved) event.currentTarget.setPointerCapture(event.pointerId);
    from.moved = true;
    setView(() => ({ ...from.view, x: from.view.x + dx, y: from.view.y + dy }));
  };
  const onPointerUp = (event: PointerEvent<HTMLDivElement>) => {
    const from = drag.current;
    drag.current = null;
    // DOM elements of steps handle their own clicks.
    if (!from || from.moved || !onSelect || (event.target as Element).closest("button")) return;
    const { left, top } = event.currentTarget.getBoundingClientRect();
    onSelect(stepAt(layout, view, { x: event.clientX - left, y: event.clientY - top }));
  };
  const onKey = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "Escape" && selected) onSelect?.(undefined);
    else if (event.key.startsWith("Arrow") && onSelect) {
      const next = selected ? neighbour(layout, selected, event.key) : (focus ?? nodes[0]?.name);
      if (next === undefined) return;
      onSelect(next);
    } else return;
    event.preventDefault();
  };

  return (
    <div className={style.frame} data-testid="dag">
      <div className={style.tools}>
        <TextInput
          size="xs"
          className={style.find}
          leftSection={<Search size={12} />}
          placeholder={t("dag.find")}
          aria-label={t("dag.find")}
          value={find}
          onChange={(event) => setFind(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") setFind("");
            if (event.key !== "Enter" || !hits) return;
            const all = [...hits];
            const next = all[(all.indexOf(selected ?? "") + 1) % all.length];
            show(next);
            onSelect?.(next);
          }}
        />
        {hits && (
          <span className="quiet num" aria-live="polite">
            {t("dag.found", { count: hits.size })}
          </span>
        )}
        <span className={style.space} />
        {isBusy && (
          <span className={style.busy} role="status">
            <LoaderCircle size={13} aria-hidden />
            {t("dag.busy")}
          </span>
        )}
        <Tool label={t("dag.smaller")} onClick={() => zoom(0.8)} icon={<Minus size={14} />} />
        <Tool label={t("dag.larger")} onClick={() => zoom(1.25)} icon={<Plus size={14} />} />
        <Tool label={t("dag.fit")} onClick={fit} icon={<Maximize size={13} />} />
      </div>
      <div
        ref={box}
        className={style.box}
        role="group"
        aria-label={label}
        tabIndex={0}
        onPointerDown={onPointerDown}
        onPointerMove={onPointerMove}
        onPointerUp={onPointerUp}
        onPointerCancel={() => (drag.current = null)}
        onKeyDown={onKey}
      >
        {layoutKey !== "" && (
          <Graph
            {...{ nodes, layout, states, selected, onSelect, view, size, related, hits }}
            isBusy={isBusy}
          />
        )}
      </div>
    </div>
  );
}

function Tool({ label, onClick, icon }: { label: string; onClick: () => void; icon: React.ReactNode }) {
  return (
    <Tooltip label={label}>
      <ActionIcon variant="default" size={26} aria-label={label} onClick={onClick}>
        {icon}
      </ActionIcon>
    </Tooltip>
  );
}

interface GraphProps extends Omit<Props, "label" | "focus"> {
  layout: Layout;
  view: View;
  size: Size;
  /** Highlighted steps while a step is selected: the step with its upstream and downstream steps. */
  related: ReadonlySet<string> | null;
  hits: ReadonlySet<string> | null;
  isBusy: boolean;
}

function Graph({ nodes, layout, states, selected, onSelect, view, size, related, hits, isBusy }: GraphProps) {
  const { t } = useTranslation();
  const isSimplified = view.scale < READABLE_SCALE && nodes.length > DETAILED_STEPS_MAX;
  const window = viewportOf(view, size);
  const isDim = (name: string) => (hits ? !hits.has(name) : related ? !related.has(name) : false);
  const visible = isSimplified ? [] : nodes.filter(({ name }) => isVisible(layout, name, window));
  const edges = useMemo(
    () => layout.edges.map((edge) => ({ ...edge, path: curvePath(edge.points) })),
    [layout.edges],
  );
  const adds = useMemo(
    () => new Set(nodes.flatMap(({ name, addedBy }) => addedBy.map((adder) => `${adder} ${name}`))),
    [nodes],
  );
  const transform = `translate(${view.x} ${view.y}) scale(${view.scale})`;

  return (
    <div
      data-testid="dag-shown"
      data-steps={layout.positions.size}
      data-far={isSimplified}
      data-busy={isBusy}
    >
      <svg width={size.width} height={size.height} className={style.lines} aria-hidden>
        <g transform={transform}>
          {layout.bands.length > 1 &&
            layout.bands
              .slice(1)
              .map(({ section, y }) => (
                <line
                  key={section}
                  x1={-4_000}
                  x2={layout.width + 4_000}
                  y1={y}
                  y2={y}
                  className={style.rule}
                />
              ))}
          {isSimplified ? (
            <>
              <path d={joinedPath(edges)} className={style.far} />
              <SimplifiedSteps nodes={nodes} layout={layout} states={states} isDim={isDim} />
              {selected && (
                <SimplifiedSteps nodes={nodes} layout={layout} only={selected} isDim={() => false} />
              )}
            </>
          ) : (
            edges.map(
              (edge) =>
                isEdgeVisible(edge, window) && (
                  <path
                    key={`${edge.from} ${edge.to}`}
                    d={edge.path}
                    className={style.edge}
                    data-adds={adds.has(`${edge.from} ${edge.to}`) || undefined}
                    data-state={states?.get(edge.from)?.status}
                    data-dim={isDim(edge.from) || isDim(edge.to) || undefined}
                    data-kin={(related?.has(edge.from) && related.has(edge.to)) || undefined}
                  />
                ),
            )
          )}
        </g>
      </svg>
      <div
        className={style.world}
        style={{ transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})` }}
      >
        {layout.bands.length > 1 &&
          layout.bands.map(({ section, y }) => (
            <span
              key={section}
              className={style.band}
              style={{ transform: `translate(0, ${y + 6}px) scale(${Math.max(1, 0.6 / view.scale)})` }}
            >
              {t(`section.${section}`)}
            </span>
          ))}
        {visible.map((node) => {
          const point = layout.positions.get(node.name);
          return (
            point && (
              <Node
                key={node.name}
                node={node}
                x={point.x}
                y={point.y}
                state={states?.get(node.name)}
                isSelected={node.name === selected}
                isDim={isDim(node.name)}
                onSelect={onSelect}
              />
            )
          );
        })}
      </div>
    </div>
  );
}

function isVisible(layout: Layout, name: string, window: ReturnType<typeof viewportOf>): boolean {
  const point = layout.positions.get(name);
  return point !== undefined && isNodeVisible(point, window);
}

const paths = new WeakMap<object, string>();

/** Returns all edges as one path, cached per layout. */
function joinedPath(edges: ReadonlyArray<{ path: string }>): string {
  const known = paths.get(edges);
  if (known !== undefined) return known;
  const joined = edges.map(({ path }) => path).join("");
  paths.set(edges, joined);
  return joined;
}

interface BlocksProps {
  nodes: readonly DagNode[];
  layout: Layout;
  states?: ReadonlyMap<string, NodeState>;
  only?: string;
  isDim: (name: string) => boolean;
}

/** Steps at a small scale: one path per colour. */
function SimplifiedSteps({ nodes, layout, states, only, isDim }: BlocksProps) {
  const groups = new Map<string, string>();
  for (const { name } of nodes) {
    const point = layout.positions.get(name);
    if (!point || (only !== undefined && only !== name)) continue;
    const status = states?.get(name)?.status;
    const key = `${isDim(name) ? "dim" : ""} ${status ?? "none"}`;
    const block = `M${point.x} ${point.y}h${NODE_WIDTH}v${NODE_HEIGHT}h${-NODE_WIDTH}z`;
    groups.set(key, (groups.get(key) ?? "") + block);
  }
  return [...groups].map(([key, path]) => {
    const [dim, status = "none"] = key.split(" ");
    return (
      <path
        key={key}
        d={path}
        className={only === undefined ? style.block : style.chosenBlock}
        data-tone={status === "none" ? undefined : stepTone(status as NodeState["status"])}
        data-status={status}
        data-dim={dim === "" ? undefined : true}
      />
    );
  });
}

const NO_SIZE: Size = { width: 0, height: 0 };

function useSize(element: React.RefObject<HTMLElement | null>): Size {
  const [size, setSize] = useState(NO_SIZE);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const observer = new ResizeObserver(() =>
      setSize({ width: target.clientWidth, height: target.clientHeight }),
    );
    observer.observe(target);
    return () => observer.disconnect();
  }, [element]);
  return size;
}

/** The visible part: the whole graph at first and whenever its structure changes, else as the user left it. */
function useView(layout: Layout, layoutKey: string, size: Size, shown: string | undefined) {
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const isUserView = useRef(false);
  const known = useRef({ layoutKey: "", size: NO_SIZE });
  useLayoutEffect(() => {
    if (layoutKey === "" || size.width === 0) return;
    if (known.current.layoutKey !== layoutKey) isUserView.current = false;
    known.current = { layoutKey, size };
    if (!isUserView.current) setView(initialView(layout, size));
  }, [layout, layoutKey, size]);

  // A step that is selected elsewhere, or is in focus, is scrolled into view.
  const before = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (layoutKey === "" || size.width === 0 || before.current === shown) return;
    before.current = shown;
    const point = shown === undefined ? undefined : layout.positions.get(shown);
    if (!point) return;
    setView((view) => {
      const isFar = view.scale < READABLE_SCALE && layout.positions.size > DETAILED_STEPS_MAX;
      return !isFar && isNodeVisible(point, viewportOf(view, size, -NODE_WIDTH / 4))
        ? view
        : centerView(view, point, size);
    });
  }, [shown, layoutKey, size, layout]);

  const change = useCallback((next: (view: View) => View) => {
    isUserView.current = true;
    setView(next);
  }, []);
  return [view, change] as const;
}
