import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Response } from 'express'
import { type Export, exportCsv } from '../csv-export.ts'
import { maskFor } from '../personal-data.ts'
import type { ScreenDeps } from './routes.ts'
import { actorOf, visitOf } from './visit.ts'

/** Sends a list as a file, made while it is sent. */
export async function sendCsv(deps: ScreenDeps, res: Response, wanted: Export): Promise<void> {
  const visit = visitOf(res)
  const mask = maskFor(visit.session.person.role, deps.config())
  res.set({
    'Content-Type': 'text/csv; charset=utf-8',
    'Content-Disposition': `attachment; filename="${wanted.list}.csv"`,
    'X-Content-Type-Options': 'nosniff',
  })
  // Whoever only asks for the head gets no rows, so nothing was exported.
  if (res.req.method === 'HEAD') return void res.end()
  const lines = await exportCsv(deps, wanted, { actor: actorOf(visit), via: 'page', mask })
  await pipeline(Readable.from(lines), res).catch((error: { code?: unknown }) => {
    // Nobody is there to be told; of anything else the error handler tells the log, and the browser that the file is cut off.
    if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error
  })
}
