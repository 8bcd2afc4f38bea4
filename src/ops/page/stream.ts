import { setTimeout as pause } from 'node:timers/promises'
import type { RequestHandler } from 'express'
import type { Changes } from '../changes.ts'
import { readSession, tokenOfCookies } from '../sessions.ts'
import { isSecure, type PageServer } from './page.ts'

const HEARTBEAT_MS = 20_000
/** All open pages together get themselves anew so seldom at most: acknowledging shares the process with them. */
const BETWEEN_PAGES_MS = 250

/** After how long an open page may be told of the next change: not all at once. `chance` is from 0 to 1. */
export const pageWaitMs = (openPages: number, chance: number) => openPages * BETWEEN_PAGES_MS * (0.5 + chance)

/**
 * Tells an open page that something has changed, not what: it then gets itself anew, by the rights of its session. The stream ends with the
 * session, as far as the next heartbeat, and with the process.
 */
export function pageStream(server: PageServer, changes: Changes, stopping: AbortSignal | undefined): RequestHandler {
  let open = 0
  return async (req, res) => {
    const gone = new AbortController()
    res.once('close', () => gone.abort())
    const signal = stopping ? AbortSignal.any([gone.signal, stopping]) : gone.signal
    const token = tokenOfCookies(req.get('cookie'), isSecure(req, server.publicUrl)) ?? ''
    const batches = changes.listen(signal, `session:${token}`)
    if (!batches) return void res.status(503).set('Retry-After', '30').end()
    res.set({ 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store', 'X-Accel-Buffering': 'no' })
    res.write('retry: 5000\n\n')

    const heartbeat = setInterval(() => {
      // While the database is away nobody is signed out.
      readSession(server.pool, token, { isUse: false }).then(
        (session) => (session ? res.write(': still here\n\n') : res.end()),
        () => res.write(': still here\n\n'),
      )
    }, HEARTBEAT_MS)
    open += 1
    try {
      for await (const batch of batches) {
        // An empty one only shows that somebody looks.
        if (batch.length === 0) continue
        res.write('event: change\ndata: {}\n\n')
        await pause(pageWaitMs(open, Math.random()), undefined, { signal }).catch(() => undefined)
      }
    } finally {
      open -= 1
      clearInterval(heartbeat)
      res.end()
    }
  }
}
