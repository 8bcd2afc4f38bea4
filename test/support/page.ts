import { randomUUID } from 'node:crypto'
import express, { type Express } from 'express'
import supertest from 'supertest'
import { readConfig, type UserConfig } from '../../src/config.ts'
import { createRecorder } from '../../src/events/record.ts'
import { replayEvent } from '../../src/events/replay.ts'
import { forecastReplay } from '../../src/follow-ups/forecast.ts'
import { openJobs } from '../../src/follow-ups/queue.ts'
import { isWanted } from '../../src/follow-ups/rules.ts'
import { createLog } from '../../src/log.ts'
import { type PageDeps, pageRoutes } from '../../src/ops/page/routes.ts'
import { createPerson } from '../../src/ops/people.ts'
import { startSessionByLink } from '../../src/ops/sessions.ts'
import { createSignInLink } from '../../src/ops/sign-in-links.ts'
import type { TestDatabase } from './database.ts'

type Who = 'operator' | 'reader'

/** The page on a real database, with an operator (mia) and a reader (rob) who are signed in. */
export interface TestPages {
  app: Express
  deps: PageDeps
  cookies: Record<Who, string>
  get(path: string, who?: Who): supertest.Test
  /** Sends a form from a page of ours; its one-time ID is new unless `form` is among the fields. */
  submit(path: string, fields: Record<string, string | string[]>, who?: Who): supertest.Test
}

export async function testPages(
  { pool, url }: TestDatabase,
  userConfig: UserConfig = { sources: {} },
  more: Partial<PageDeps> = {},
): Promise<TestPages> {
  const jobs = await openJobs(url)
  const config = readConfig(userConfig)
  const wanted = (source: Parameters<typeof isWanted>[1], type: string | null) => isWanted(config, source, type)
  const replayDeps = {
    pool,
    recorder: createRecorder(pool, jobs),
    config: () => config,
    isWanted: wanted,
    enqueueEvents: jobs.enqueueEvents,
  }
  const deps: PageDeps = {
    pool,
    reads: pool,
    log: createLog('silent', 'test'),
    replay: (id, actor, via) => replayEvent(replayDeps, id, actor, via),
    runs: { ...replayDeps, forecast: (events) => forecastReplay(pool, config, events, 10_000) },
    enqueueSends: jobs.enqueueSends,
    config: () => config,
    fingerprints: () => [],
    version: '0.0.0',
    ...more,
  }
  const cookies = { operator: await signedIn(pool, 'mia', 'operator'), reader: await signedIn(pool, 'rob', 'reader') }
  const app = express()
    .set('etag', false)
    .use(pageRoutes(deps))
    .use(
      ((error, _req, res, _next) =>
        void res.status(500).json({ unhandled: String(error) })) satisfies express.ErrorRequestHandler,
    )
  return {
    app,
    deps,
    cookies,
    get: (path, who = 'operator') => supertest(app).get(path).set('cookie', cookies[who]),
    submit: (path, fields, who = 'operator') =>
      supertest(app)
        .post(path)
        .set('cookie', cookies[who])
        .set('sec-fetch-site', 'same-origin')
        .type('form')
        .send({ form: randomUUID(), ...fields }),
  }
}

/** The `Cookie` header of a new person's session, over plain HTTP. */
async function signedIn(pool: TestDatabase['pool'], name: string, role: Who): Promise<string> {
  const by = { actor: 'tester', via: 'test' }
  const person = await createPerson(pool, { name, role }, by)
  const code = await createSignInLink(pool, { person: person?.id ?? '', minutes: 5 }, by)
  const token = await startSessionByLink(pool, code ?? '')
  return `oncehook=${token}`
}
