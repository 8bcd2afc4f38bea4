import { Router } from 'express'
import type { Changes } from '../changes.ts'
import { createPasswords, type Passwords } from '../passwords.ts'
import type { OpsDeps } from '../routes.ts'
import { createAssets } from './assets.ts'
import { html } from './html.ts'
import { missingPage, onPageError, type PageServer, sendPage, signedIn } from './page.ts'
import type { SandboxPanel } from './sandbox-panel.ts'
import { auditScreen } from './screens/audit.ts'
import { eventScreen } from './screens/event.ts'
import { eventsScreen } from './screens/events.ts'
import { overviewScreen } from './screens/overview.ts'
import { replaysScreen } from './screens/replays.ts'
import { reviewScreen } from './screens/review.ts'
import { sandboxScreen } from './screens/sandbox.ts'
import { searchScreen } from './screens/search.ts'
import { sendScreen } from './screens/send.ts'
import { sendingScreen } from './screens/sending.ts'
import { sendsScreen } from './screens/sends.ts'
import { settingsScreen } from './screens/settings.ts'
import { sourcesScreen } from './screens/sources.ts'
import { askToSignIn, signInRoutes } from './sign-in.ts'

import { pageStream } from './stream.ts'

export interface PageDeps extends OpsDeps {
  version: string
  changes?: Changes | undefined
  /** What stands in for the email API on this machine; never in production. */
  sandbox?: SandboxPanel | undefined
  /** Those of argon2id without it. */
  passwords?: Passwords
}

/** What screens and forms are made of: everything that the API has, and how a page is sent. */
export type ScreenDeps = PageDeps & PageServer & { passwords: Passwords }

/** The page under /ops: every screen is a GET, every change a form's POST. */
export function pageRoutes(deps: PageDeps): Router {
  const assets = createAssets()
  const server: ScreenDeps = {
    ...deps,
    publicUrl: deps.publicUrl,
    passwords: deps.passwords ?? createPasswords(),
    now: deps.now ?? (() => new Date()),
    storage: { awaySince: undefined },
    frame: { assets, version: deps.version, hasSandbox: deps.sandbox !== undefined },
  }
  const router = Router({ caseSensitive: true, strict: true })
  router.use(assets.router)
  const pages = Router({ caseSensitive: true, strict: true })
  router.use('/ops', (_req, res, next) => {
    // Over plain HTTP browsers say where a form comes from by its Origin alone, and with no-referrer they say `null`.
    res.set({ 'Cache-Control': 'no-store', 'Referrer-Policy': 'same-origin' })
    next()
  })

  // Before anybody is known: signing in.
  pages.use(signInRoutes(server))
  // After: the screens.
  pages.use('/ops', signedIn(server, askToSignIn(server)))
  if (deps.changes) pages.get('/ops/stream', pageStream(server, deps.changes, deps.stopping))
  if (deps.sandbox) pages.use(sandboxScreen({ ...server, sandbox: deps.sandbox }))
  pages.use(overviewScreen(server), sendingScreen(server))
  pages.use(eventsScreen(server), eventScreen(server), replaysScreen(server), sourcesScreen(server), auditScreen(server))
  pages.use(reviewScreen(server))
  pages.use(sendsScreen(server), sendScreen(server), searchScreen(server))
  pages.use(settingsScreen(server))
  pages.use('/ops', (req, res) =>
    sendPage(server, req, res, missingPage('Not found', html`There is no such page. <a href="/ops">Overview</a>`)),
  )
  router.use(pages)
  router.use('/ops', onPageError(server))
  return router
}
