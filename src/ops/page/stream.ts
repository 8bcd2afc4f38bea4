import type { RequestHandler } from 'express'
import type { Changes } from '../changes.ts'
import { readSession, tokenOfCookies } from '../sessions.ts'
import { isSecure, type PageServer } from './page.ts'

const HEARTBEAT_MS = 20_000

/**
 * Tells an open page that something has changed, not what: it then gets itself anew, by the rights of its session. The stream ends with the
 * session, as far as the next heartbeat, and with the process.
 */
export function pageStream(server: PageServer, changes: Changes, stopping: AbortSignal | undefined): RequestHandler {
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
    try {
      // An empty one only shows that somebody looks.
      for await (const batch of batches) if (batch.length > 0) res.write('event: change\ndata: {}\n\n')
    } finally {
      clearInterval(heartbeat)
      res.end()
    }
  }
}
