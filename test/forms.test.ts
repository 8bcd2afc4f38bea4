import supertest from 'supertest'
import { expect, test } from 'vitest'
import { createPanel } from '../src/sandbox/panel.ts'
import { testDatabase } from './support/database.ts'
import { openOpsStage } from './support/ops-stage.ts'
import { tellStories } from './support/ops-stories.ts'

const database = await testDatabase()
const stage = await openOpsStage(database, {
  sandbox: createPanel({ sandboxUrl: 'http://127.0.0.1:1', serviceUrl: () => '', source: () => undefined }),
})
const { screens } = await tellStories(database, stage)

/** Forms about the person's own page, or about the stand-in for the email API: there is no API for them. */
const ofThePage = [/^\/ops\/sign-/, /^\/ops\/settings($|\/(look|password|sessions|sign-out))/, /^\/ops\/sandbox\//]
/** The API only. */
const withoutCommand = [/^\/ops\/(settings\/)?views\//, /^\/ops\/replays\/[^/]+\/stop$/]

test('each form that changes something says how to do it by the API, with the call, and the line where the command has one', async () => {
  const seen = new Set<string>()
  const silent: string[] = []
  for (const [, path] of screens) {
    const { text } = await supertest(stage.baseURL).get(path).set('cookie', stage.cookies.operator)
    for (const [form, action = ''] of text.matchAll(/<form action="([^"]*)" method="post".*?<\/form>/gs)) {
      const shape = action.replaceAll(/\/(\d+|[0-9a-f-]{36}|[^/]*(%|:)[^/]*)(?=\/|$)/g, '/:id')
      seen.add(shape)
      if (ofThePage.some((own) => own.test(action))) continue
      const hasLine = /oncehook /.test(form) || withoutCommand.some((own) => own.test(action))
      if (!form.includes('Do this by API') || !/curl -sS/.test(form) || !hasLine) silent.push(`${path}: ${action}`)
    }
  }

  expect([...new Set(silent)]).toEqual([])
  // So that the walk is known to have met them.
  for (const action of ['/ops/sending/switch', '/ops/replays', '/ops/events/:id/replay', '/ops/sends/:id/reopen'])
    expect([...seen], [...seen].join(' ')).toContain(action)
})
