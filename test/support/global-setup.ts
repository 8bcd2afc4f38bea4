import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { installQueues } from '../../src/follow-ups/queue.ts'
import { migrate } from '../../src/migrate.ts'
import { startDatabase } from '../../src/sandbox/database.ts'

declare module 'vitest' {
  interface ProvidedContext {
    databaseUrl: string
  }
}

/** One real PostgreSQL for the run, with a migrated template that each test file copies. */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), 'oncehook-test-'))
  // As root the server runs as another user.
  chmodSync(folder, 0o755)
  const database = await startDatabase({
    directory: join(folder, 'postgres'),
    // Nothing here survives the run, so its disk need not be waited for.
    settings: ['fsync=off', 'full_page_writes=off', 'max_connections=300', 'shared_buffers=256MB'],
  })
  const template = database.url.replace(/\/oncehook$/, '/template')
  const admin = new pg.Client({ connectionString: database.url })
  await admin.connect()
  await admin.query('create database template')
  await admin.end()
  await migrate(template)
  await installQueues(template)
  project.provide('databaseUrl', database.url)

  return async () => {
    await database.stop()
    rmSync(folder, { recursive: true, force: true })
  }
}
