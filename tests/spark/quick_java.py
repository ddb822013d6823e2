"""How Java is started in tests of Spark."""

# Soon over: what makes a long run fast only costs here.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
