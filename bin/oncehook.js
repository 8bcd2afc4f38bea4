#!/usr/bin/env node
// Plain JavaScript, so that an older Node can still read it and say what to do.
const [major = 0] = process.versions.node.split('.').map(Number)
if (major < 24) {
  console.error(`oncehook needs Node 24, this is ${process.versions.node}. Node 24 came along with npm install:`)
  console.error('use npx oncehook …, npm start or npm run, which find it.')
  process.exit(78)
}
// What was compiled once, the stripped types too, is kept for the next start: it takes a third less time.
const { enableCompileCache } = await import('node:module')
enableCompileCache()
const { main } = await import('../src/cli.ts')
await main(process.argv)
