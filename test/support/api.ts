import express from 'express'
import supertest from 'supertest'
import { readConfig, type UserConfig } from '../../src/config.ts'
import { openJobs } from '../../src/follow-ups/queue.ts'
import { createLog } from '../../src/log.ts'
import { type OpsDeps, opsRoutes } from '../../src/ops/routes.ts'
import { createToken, type Role } from '../../src/ops/tokens.ts'
import type { TestDatabase } from './database.ts'
import { holdToDeclarations } from './declared.ts'

/** The API on a real database, each answer held to its declaration, with a token for each role. */
export async function testApi({ pool, url }: TestDatabase, more: Partial<OpsDeps> = {}, config: Partial<UserConfig> = {}) {
  const { enqueueSends } = await openJobs(url)
  const tokens: Record<Role, string> = {
    reader: await createToken(pool, { name: 'grafana', role: 'reader' }),
    operator: await createToken(pool, { name: 'mia', role: 'operator' }),
    sender: await createToken(pool, { name: 'shop', role: 'sender' }),
  }
  const deps: OpsDeps = {
    pool,
    reads: pool,
    log: createLog('silent', 'test'),
    enqueueSends,
    config: () => readConfig({ sources: {}, ...config }),
    fingerprints: () => [],
    replay: async () => ({ outcome: 'queued' }),
    runs: {} as never, // who asks for them gives them
    ...more,
  }
  const app = express().set('etag', false).use(holdToDeclarations()).use(opsRoutes(deps))
  const call = (method: 'get' | 'post' | 'delete', path: string, body?: object | string, by: Role = 'operator') =>
    supertest(app)[method](path).set('authorization', `Bearer ${tokens[by]}`).send(body)
  return {
    app,
    tokens,
    call,
    get: (path: string, by: Role = 'reader') => call('get', path, undefined, by),
    post: (path: string, body?: object | string, by: Role = 'operator') => call('post', path, body, by),
    /** What the audit has of a subject, without what differs each time. */
    audited: async (subject: string) =>
      (await pool.query('select actor, via, action, reason from audit_log where subject = $1 order by id', [subject])).rows,
  }
}
