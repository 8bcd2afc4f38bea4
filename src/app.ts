import { randomUUID } from 'node:crypto'
import express, { type ErrorRequestHandler, type Express } from 'express'
import helmet from 'helmet'
import { isPoolFull, isStorageAway } from './db.ts'
import { type EventRoutesDeps, eventRoutes } from './events/routes.ts'
import type { Log } from './log.ts'
import { methodNotAllowed } from './ops/access.ts'
import { type PageDeps, pageRoutes } from './ops/page/routes.ts'
import { opsRoutes } from './ops/routes.ts'
import { sendProblem, sendStorageProblem } from './problem.ts'

export interface AppDeps {
  events: EventRoutesDeps
  ops: PageDeps
  log: Log
  trustProxy?: string | undefined
  /** Why the process is not ready for traffic; undefined when it is. */
  notReady(): Promise<string | undefined>
  metrics(): Promise<{ text: string; contentType: string }>
}

/** The whole HTTP surface. Webhook routes come first, before anything that would read a body or cost time. */
export function createApp({ events, ops, log, trustProxy, notReady, metrics }: AppDeps): Express {
  const app = express()
  app.disable('x-powered-by')
  app.set('etag', false)
  if (trustProxy !== undefined) app.set('trust proxy', /^\d+$/.test(trustProxy) ? Number(trustProxy) : trustProxy)

  app.use((req, res, next) => {
    const given = req.headers['x-request-id']
    const id = typeof given === 'string' && /^[\w.-]{1,64}$/.test(given) ? given : randomUUID()
    res.locals.requestId = id
    res.setHeader('x-request-id', id)
    // For answers to providers; what stands below sets its own.
    res.setHeader('X-Content-Type-Options', 'nosniff')
    res.setHeader('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'")
    next()
  })
  app.use(eventRoutes(events))

  app.use(
    helmet({
      contentSecurityPolicy: {
        useDefaults: false,
        directives: {
          defaultSrc: ["'none'"],
          scriptSrc: ["'self'"],
          styleSrc: ["'self'"],
          imgSrc: ["'self'", 'data:'],
          connectSrc: ["'self'"],
          formAction: ["'self'"],
          frameAncestors: ["'none'"],
          baseUri: ["'none'"],
        },
      },
      referrerPolicy: { policy: 'no-referrer' },
    }),
  )
  app.get('/healthz', (_req, res) => void res.json({ status: 'ok' }))
  app.get('/readyz', async (_req, res) => {
    const reason = await notReady()
    res
      .status(reason === undefined ? 200 : 503)
      .json(reason === undefined ? { status: 'ready' } : { status: 'not ready', reason })
  })
  app.get('/metrics', async (_req, res) => {
    const { text, contentType } = await metrics()
    res.set('Content-Type', contentType).send(text)
  })
  app.all(['/healthz', '/readyz', '/metrics'], methodNotAllowed('GET, HEAD'))
  app.use(pageRoutes(ops))
  app.use(opsRoutes(ops))
  app.use((_req, res) => sendProblem(res, 404, 'not_found'))

  const onError: ErrorRequestHandler = (error, _req, res, _next) => {
    const request = res.locals.requestId
    if (res.headersSent) return void res.destroy()
    if (isPoolFull(error)) {
      log.warn({ error, request }, 'too much is asked at once')
      return sendStorageProblem(res, 'too much is asked at once; try again, and read first what has become of a change', 'busy')
    }
    if (isStorageAway(error)) {
      log.warn({ error, request }, 'storage is away')
      return sendStorageProblem(res, 'storage does not answer; try again, and read first what has become of it')
    }
    // What Express itself found wrong with the request, such as a path that is no valid percent-encoding.
    const { status } = error as { status?: unknown }
    if (typeof status === 'number' && status >= 400 && status < 500) return sendProblem(res, status, 'invalid_request')
    log.error({ error, request }, 'request failed')
    sendProblem(res, 500, 'internal_error')
  }
  app.use(onError)
  return app
}
