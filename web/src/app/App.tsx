/** Root component: theme, queries, notifications, and the login page, the page of an invitation, or the router. */

import { MantineProvider, useMantineColorScheme } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider, useQuery } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useSyncExternalStore } from "react";

import { onSessionChange, openInvitation, sessionNumber } from "../api/auth";
import { feed } from "../api/feed";
import { meQuery, queryClient, refreshMe, startRefreshing } from "../api/queries";
import { isAllNamespaces } from "../lib/namespaces";
import { setPreferences, usePreferences } from "../lib/preferences";
import { canSomewhere, covers, listedNamespaces } from "../lib/rights";
import { closeDialog } from "./dialogs";
import { clearWatched, startEndNotifications } from "./endNotifications";
import { Invitation } from "./Invitation";
import { preloadPages } from "./lazyPage";
import { nonce } from "./nonce";
import { router } from "./router";
import { SignIn } from "./SignIn";
import { theme } from "./theme";

export function App() {
  const current = useSyncExternalStore(onSessionChange, sessionNumber);
  const invitation = useSyncExternalStore(onSessionChange, openInvitation);
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <Theme />
      <QueryClientProvider client={queryClient}>
        <Notifications position="bottom-right" limit={4} />
        {invitation !== null ? (
          <Invitation secret={invitation} />
        ) : current === 0 ? (
          <SignIn />
        ) : (
          <SignedIn key={current} />
        )}
      </QueryClientProvider>
    </MantineProvider>
  );
}

/** Interval at which a caller without the right to read events reads its rights and the data of the page. */
const POLL_MS = 5_000;

function SignedIn() {
  useEffect(() => {
    const stops = [startRefreshing(), startEndNotifications(), router.subscribe("onRendered", preloadPages)];
    return () => {
      stops.forEach((stop) => stop());
      closeDialog();
      clearWatched();
      feed.stop();
      queryClient.clear();
    };
  }, []);
  useLiveData();
  usePermittedNamespace();
  return <RouterProvider router={router} />;
}

/** Follows the feed; without the right to read events, polls. */
function useLiveData(): void {
  const me = useQuery(meQuery).data;
  const hasFeed = canSomewhere(me, "read", "events");
  useEffect(() => {
    if (hasFeed) return feed.start();
    feed.stop();
    const poll = () => {
      if (document.hidden) return;
      void refreshMe();
      void queryClient.invalidateQueries({
        type: "active",
        predicate: ({ queryKey }) => queryKey[0] !== "me",
      });
    };
    const timer = setInterval(poll, POLL_MS);
    return () => clearInterval(timer);
  }, [hasFeed]);
}

/** Forgets a remembered namespace that the caller may not read: another user may have chosen it. */
function usePermittedNamespace(): void {
  const me = useQuery(meQuery).data;
  const { namespace } = usePreferences();
  useEffect(() => {
    const permitted = listedNamespaces(me);
    if (!permitted || namespace === null || isAllNamespaces(namespace)) return;
    if (!permitted.some((pattern) => covers(pattern, namespace))) setPreferences({ namespace: null });
  }, [me, namespace]);
}

function Theme() {
  const { theme: colorScheme } = usePreferences();
  const { setColorScheme } = useMantineColorScheme();
  useEffect(() => setColorScheme(colorScheme), [colorScheme, setColorScheme]);
  return null;
}
